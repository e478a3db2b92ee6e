// Deadlines of tests: how long what should happen may take before it counts as not happening.
// They tell what hangs from what is slow, so they grow with the load of the machine.
#pragma once

#include <chrono>
#include <functional>

namespace test_support {

// How much slower than an idle machine this one may be: ENGINE_TEST_TIME_SCALE (1 where it is not
// set; larger for sanitizers and emulators) times twice the processes that want to run per core.
// At least 1; never falls within a process and those that it forks, so that what is waited for
// does not outlast the wait.
double time_scale();

// `base` on this machine, now.
std::chrono::milliseconds deadline(std::chrono::milliseconds base);
inline int deadline_ms(int base) {
  return static_cast<int>(deadline(std::chrono::milliseconds(base)).count());
}

// Whether deadline(base) has passed since `start`; a load that came since then counts.
bool is_past(std::chrono::steady_clock::time_point start, std::chrono::milliseconds base);

// True as soon as `condition` holds, looked at every few milliseconds; false after deadline(base).
bool eventually(const std::function<bool()>& condition,
                std::chrono::milliseconds base = std::chrono::seconds(20));

// Sleeps for deadline(base): for what leaves no trace to wait for, such as that nothing happens.
void pause(std::chrono::milliseconds base);

}  // namespace test_support
