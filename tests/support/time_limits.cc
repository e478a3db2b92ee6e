// Deadlines scaled by the load of the machine.
#include "tests/support/time_limits.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

namespace test_support {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMeasurable = 50e6;  // nanoseconds of processor time
constexpr double kMaxLoad = 20;       // a hanging test should end, however busy the machine is

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

// The average of the last minute or the current number, whichever is larger: the load may just have
// begun.
double processes_per_core() {
  std::ifstream file("/proc/loadavg");  // "0.31 0.28 0.25 2/345 6789"
  double minute = 0, skipped = 0, running = 0;
  if (!(file >> minute >> skipped >> skipped >> running)) return 1;
  return std::max(minute, running) / usable_cores();
}

// Time that this process has run or waited for a core, over the time that it has run: more than the
// load says where other processes have priority (nice).
double measured_slowdown() {
  std::ifstream file("/proc/self/schedstat");  // nanoseconds run, nanoseconds waited, time slices
  double run = 0, waited = 0;
  if (!(file >> run >> waited) || run < kMeasurable) return 1;
  return (run + waited) / run;
}

double scale_from_environment() {
  const char* text = std::getenv("ENGINE_TEST_TIME_SCALE");
  return text != nullptr ? std::max(1.0, std::strtod(text, nullptr)) : 1.0;
}

}  // namespace

double time_scale() {
  static std::atomic<double> highest{1};
  static const double given = scale_from_environment();
  const double load = std::max(processes_per_core(), measured_slowdown());
  const double now = given * std::clamp(2 * load, 1.0, kMaxLoad);
  double before = highest;
  while (now > before && !highest.compare_exchange_weak(before, now)) {
  }
  return std::max(now, before);
}

std::chrono::milliseconds deadline(std::chrono::milliseconds base) {
  return std::chrono::ceil<std::chrono::milliseconds>(
      time_scale() * std::chrono::duration<double, std::milli>(base));
}

bool is_past(Clock::time_point start, std::chrono::milliseconds base) {
  return Clock::now() - start > base && Clock::now() - start > deadline(base);
}

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds base) {
  const auto start = Clock::now();
  while (!condition()) {
    if (is_past(start, base)) return condition();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

void pause(std::chrono::milliseconds base) { std::this_thread::sleep_for(deadline(base)); }

}  // namespace test_support
