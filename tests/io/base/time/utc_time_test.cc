// Dates of known times.
#include "io/base/time/utc_time.h"

#include <gtest/gtest.h>

#include <limits>

namespace {

TEST(UtcTime, IsWrittenAsIso8601) {
  EXPECT_EQ(base::utc_text(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(base::utc_text(1'735'787'045'678'901), "2025-01-02T03:04:05.678Z");
  EXPECT_EQ(base::utc_seconds_text(1'735'787'045), "2025-01-02T03:04:05Z");
  EXPECT_EQ(base::utc_seconds_text(1'735'787'045, "%Y%m%d-%H%M%S"), "20250102-030405");
  EXPECT_EQ(base::utc_seconds_text(std::numeric_limits<std::time_t>::max()), "");
  EXPECT_GT(base::unix_us(), 1'735'787'045'000'000);
}

}  // namespace
