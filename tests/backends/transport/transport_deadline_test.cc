// Every transport takes the deadline of its waits from the clock of its context.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "backends/compose/table/backend_table.h"
#include "backends/transport/inproc/inproc_exchange.h"
#include "tests/backends/transport/link_job.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_clock.h"
#include "tests/support/time_limits.h"

namespace {

using namespace std::chrono_literals;

std::vector<const backends::Backend*> transports() {
  std::vector<const backends::Backend*> found;
  for (const backends::Backend& backend : backends::all_backends()) {
    const bool usable = backend.usable && (backend.missing == nullptr || backend.missing().empty());
    if (usable && !backend.device_memory && backend.reach != backends::Reach::kThreads)
      found.push_back(&backend);
  }
  return found;
}

class Deadlines : public testing::TestWithParam<const backends::Backend*> {};

// An hour passes on the clock alone, while rank 0 waits.
TEST_P(Deadlines, ACollectiveThatARankDoesNotMakeEndsByTheClock) {
  link_job::Job job;
  job.clock = &job.test_clock;
  job.timeout = 1h;
  std::atomic<bool> waits{false}, has_summed{false}, ended{false};
  const test_support::PassingTime time(job.test_clock, 1h, [&] { return waits && has_summed; });
  std::vector<std::unique_ptr<backends::Communicator>> made(2);
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    auto& communicator = made[static_cast<std::size_t>(rank)];
    communicator = GetParam()->create(job.context(rank, 2));
    float value = 1;
    communicator->all_reduce(&value, 1, base::DType::kF32, backends::ReduceOp::kSum);
    EXPECT_EQ(value, 2.f);
    if (rank == 1) {
      has_summed = true;
      EXPECT_TRUE(test_support::eventually([&] { return ended.load(); }));
      return;
    }
    waits = true;
    try {
      communicator->barrier();
    } catch (...) {
      ended = true;
      throw;
    }
  });
  EXPECT_VALUES(errors[0], "timeout 3600000 ms rank 11");
  EXPECT_EQ(errors[1], "");
}

INSTANTIATE_TEST_SUITE_P(Transports, Deadlines, testing::ValuesIn(transports()),
                         [](const auto& test) { return std::string(test.param->name); });

TEST(DeadlineOfThreads, IsTakenFromTheClock) {
  test_support::TestClock clock;
  const auto exchange = std::make_shared<backends::InprocExchange>(2, 3'600'000, clock);
  const auto communicator = backends::make_inproc_communicator(exchange, 0);
  const test_support::PassingTime time(clock, 1h, [] { return true; });
  const auto errors = group_harness::outcomes(1, [&](int) { communicator->barrier(); });
  EXPECT_VALUES(errors[0], "peer: 3600000 ms, rank 1");
}

}  // namespace
