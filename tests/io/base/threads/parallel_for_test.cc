// Every job is done once, by whoever is free; and what happens when one fails.
#include "io/base/threads/parallel_for.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/time_limits.h"

namespace {

TEST(SharedJobs, EachIsDoneOnce) {
  for (const std::size_t workers : {0u, 1u, 2u, 5u}) {
    std::vector<std::atomic<int>> done(1000);
    base::parallel_for(done.size(), workers, 8, [&](std::size_t, std::size_t job) { ++done[job]; });
    for (const auto& times : done) ASSERT_EQ(times, 1) << workers << " workers";
  }
  base::parallel_for(0, 3, 1, [](std::size_t, std::size_t) { FAIL(); });
}

TEST(SharedJobs, OneWorkerIsTheCallerAndGoesInOrder) {
  std::vector<std::size_t> order;
  const auto self = std::this_thread::get_id();
  base::parallel_for(4, 1, 1, [&](std::size_t worker, std::size_t job) {
    EXPECT_EQ(worker, 0u);
    EXPECT_EQ(std::this_thread::get_id(), self);
    order.push_back(job);
  });
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3}));
}

// Each of two jobs waits for the other to begin.
TEST(SharedJobs, TwoAtTheSameTime) {
  std::mutex mutex;
  std::condition_variable changed;
  std::set<std::size_t> workers;
  base::parallel_for(2, 2, 2, [&](std::size_t worker, std::size_t) {
    std::unique_lock lock(mutex);
    workers.insert(worker);
    changed.notify_all();
    changed.wait_for(lock, test_support::deadline(std::chrono::seconds(20)),
                     [&] { return workers.size() == 2; });
  });
  EXPECT_EQ(workers, (std::set<std::size_t>{0, 1}));
}

TEST(SharedJobs, NobodyIsTooFarAhead) {
  constexpr std::size_t kMost = 3;
  std::mutex mutex;
  std::set<std::size_t> open;
  for (std::size_t job = 0; job < 500; ++job) open.insert(job);
  base::parallel_for(500, 4, kMost, [&](std::size_t, std::size_t job) {
    {
      const std::lock_guard lock(mutex);
      EXPECT_LT(job, *open.begin() + kMost);
    }
    if (job % 50 == 0) std::this_thread::yield();
    const std::lock_guard lock(mutex);
    open.erase(job);
  });
  EXPECT_TRUE(open.empty());
}

// Both fail, and the higher one first.
TEST(SharedJobs, TheLowestFailureIsThrownAndNothingBegunAfterIt) {
  std::mutex mutex;
  std::condition_variable changed;
  bool second_begun = false;
  std::atomic<int> begun = 0;
  try {
    base::parallel_for(1000, 2, 2, [&](std::size_t, std::size_t job) {
      ++begun;
      std::unique_lock lock(mutex);
      if (job == 0) {
        changed.wait_for(lock, test_support::deadline(std::chrono::seconds(20)),
                         [&] { return second_begun; });
      } else {
        second_begun = true;
        changed.notify_all();
      }
      throw std::runtime_error("job " + std::to_string(job));
    });
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "job 0");
  }
  EXPECT_EQ(begun, 2);
}

}  // namespace
