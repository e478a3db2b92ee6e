// Formats times for people and files, in UTC.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>

namespace base {

std::int64_t unix_us();                      // the current time, in microseconds since 1970
double unix_seconds();                       // the same in seconds
std::string utc_text(std::int64_t unix_us);  // "2025-01-02T03:04:05.678Z"
// Formats whole seconds with a `format` for strftime(). "" for a time that has no date.
std::string utc_seconds_text(std::time_t seconds, const char* format = "%Y-%m-%dT%H:%M:%SZ");

}  // namespace base
