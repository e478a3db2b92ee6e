// Clocks of ranks that differ, and that do not.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "backends/group.h"
#include "tests/support/time_limits.h"
#include "tools/report/trace/clock_offset.h"

namespace {

// Measured by as many ranks as there are clocks, each so far from the real one.
std::vector<tools::ClockOffset> measured(const std::vector<std::int64_t>& clocks_ns) {
  const auto groups = backends::make_inproc_groups(static_cast<int>(clocks_ns.size()),
                                                   test_support::deadline_ms(20'000));
  std::vector<tools::ClockOffset> offsets(clocks_ns.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < clocks_ns.size(); ++r)
    threads.emplace_back([&, r] {
      const auto communicator = groups[r]->make_communicator();
      offsets[r] = tools::measure_clock_offset(
          *communicator, [ahead = clocks_ns[r]] { return tools::steady_ns() + ahead; });
    });
  for (std::thread& thread : threads) thread.join();
  return offsets;
}

TEST(ClockOffset, IsFoundAsExactlyAsItSays) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  const std::vector<std::int64_t> clocks{7 * kSecond, 0, 12 * kSecond};
  const std::vector<tools::ClockOffset> offsets = measured(clocks);
  EXPECT_EQ(offsets[0].ns, 0);
  EXPECT_EQ(offsets[0].error_ns, 0);
  for (const std::size_t r : {1, 2}) {
    const std::int64_t expected = clocks[0] - clocks[r];
    EXPECT_LE(std::abs(offsets[r].ns - expected), offsets[r].error_ns) << r;
    EXPECT_GT(offsets[r].error_ns, 0) << r;
    EXPECT_LT(offsets[r].error_ns, kSecond) << r;
  }
}

TEST(ClockOffset, IsNoneOnOneHost) {
  for (const tools::ClockOffset& offset : measured({0, 0, 0})) EXPECT_EQ(offset.ns, 0);
}

}  // namespace
