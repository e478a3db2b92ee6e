// What the ranks of one test share where transports are tested without a group: a store in memory,
// a watch that knows of no failure until told, and a context for each rank.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "tests/backends/group_harness.h"
#include "tests/backends/transport/map_store.h"
#include "tests/support/test_clock.h"
#include "tests/support/time_limits.h"

namespace link_job {

class FakeWatch final : public backends::FailureDetector {
 public:
  std::optional<backends::GroupFailure> known_failure(std::chrono::milliseconds) override {
    return failed ? std::optional(backends::GroupFailure{"rank 1 died"}) : std::nullopt;
  }
  std::string reach_text(int rank) override {
    return reach.empty() ? reach : reach + std::to_string(rank);
  }
  void abort_on_failure(backends::Communicator&) override {}
  void forget(backends::Communicator&) noexcept override {}
  void retain_until_group_ends(std::shared_ptr<void>) noexcept override {}
  std::atomic<bool> failed{false};
  std::string reach;  // what the others know of a rank, without its number
};

struct Job {
  map_store::MapStore store;
  FakeWatch watch;
  std::chrono::milliseconds timeout = test_support::deadline(std::chrono::seconds(10));
  test_support::TestClock test_clock;
  const base::Clock* clock = &base::kSteadyClock;  // of the timeout; &test_clock to set it
  backends::BackendContext context(int rank, int world_size) {
    backends::BackendContext c{.members = {},
                               .store = store,
                               .watch = watch,
                               .prefix = "mesh",
                               .address = "127.0.0.1",
                               .secret = {},
                               .clock = *clock};
    c.rank = rank;
    c.world_size = world_size;
    for (int r = 0; r < world_size; ++r)
      c.members.push_back(10 + r);  // the group's ranks have other numbers
    c.secret = {std::string(32, 's'), "this test"};
    c.timeout = timeout;
    return c;
  }
};

// Of a TCP socket; "" of others.
inline std::string congestion_control(int fd) {
  char name[16] = "";
  socklen_t length = sizeof name - 1;
  getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length);
  return name;
}

using Make = std::unique_ptr<backends::Communicator> (*)(const backends::BackendContext&);

// Each rank makes a communicator and sums; expects that all get the sum.
inline std::vector<std::string> sums(
    Job& job, int world_size, Make make,
    const std::function<void(backends::BackendContext&)>& change = {}) {
  // None ends before the last has its result.
  std::vector<std::unique_ptr<backends::Communicator>> made(static_cast<std::size_t>(world_size));
  return group_harness::outcomes(world_size, [&](int rank) {
    backends::BackendContext context = job.context(rank, world_size);
    if (change) change(context);
    auto& communicator = made[static_cast<std::size_t>(rank)];
    communicator = make(context);
    float value = static_cast<float>(rank + 1);
    communicator->all_reduce(&value, 1, base::DType::kF32, backends::ReduceOp::kSum);
    const int sum = world_size * (world_size + 1) / 2;
    EXPECT_EQ(value, static_cast<float>(sum));
    communicator->barrier();
  });
}

// Returns the errors of two ranks, the second with another secret: its failure is the event after
// which the first one's time passes.
inline std::vector<std::string> errors_with_another_secret(Job& job, Make make) {
  job.clock = &job.test_clock;
  std::atomic<bool> has_failed{false};
  const test_support::PassingTime to_retries(job.test_clock, std::chrono::milliseconds(50),
                                             [] { return true; }),
      time(job.test_clock, job.timeout, [&] { return has_failed.load(); });
  return group_harness::outcomes(2, [&](int rank) {
    backends::BackendContext context = job.context(rank, 2);
    if (rank == 1) context.secret.key = std::string(32, 'x');
    try {
      make(context);
    } catch (...) {
      if (rank == 1) has_failed = true;
      throw;
    }
  });
}

}  // namespace link_job
