// Uses strftime() with gmtime_r().
#include "io/base/time/utc_time.h"

#include <chrono>
#include <cstdio>

namespace base {

std::int64_t unix_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string utc_text(std::int64_t unix_us) {
  char millis[8];
  std::snprintf(millis, sizeof millis, ".%03dZ", static_cast<int>(unix_us / 1000 % 1000));
  return utc_seconds_text(unix_us / 1'000'000, "%Y-%m-%dT%H:%M:%S") + millis;
}

std::string utc_seconds_text(std::time_t seconds, const char* format) {
  std::tm utc{};
  char text[64] = "";
  if (gmtime_r(&seconds, &utc) != nullptr) std::strftime(text, sizeof text, format, &utc);
  return text;
}

}  // namespace base
