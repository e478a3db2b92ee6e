// Deadlines of tests: how long to wait for something before the test fails. They are meant to find
// what hangs, not what is slow, so they grow with the load of the machine.
#pragma once

#include <chrono>
#include <functional>

namespace test_support {

// How much slower than on an idle machine the test may be: ENGINE_TEST_TIME_SCALE (default 1;
// larger for sanitizers and emulators) times twice the load. The load is the number of runnable
// processes per core, or the measured slowdown of this process if that is more. At least 1; never
// falls within a process and its forks, so that a deadline taken early is not longer than one taken
// later.
double time_scale();

// `base` on this machine, now.
std::chrono::milliseconds deadline(std::chrono::milliseconds base);
inline int deadline_ms(int base) {
  return static_cast<int>(deadline(std::chrono::milliseconds(base)).count());
}

// Whether deadline(base) has passed since `start`, by the load of now.
bool is_past(std::chrono::steady_clock::time_point start, std::chrono::milliseconds base);

// Polls `condition` every few milliseconds: true as soon as it holds, false after deadline(base).
bool eventually(const std::function<bool()>& condition,
                std::chrono::milliseconds base = std::chrono::seconds(20));

// Sleeps for deadline(base), where there is no event to wait for.
void pause(std::chrono::milliseconds base);

}  // namespace test_support
