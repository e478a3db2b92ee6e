// Every index is visited once, whatever the number of threads.
#include "engine/core/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace engine {
namespace {

TEST(ThreadPool, VisitsEachIndexOnce) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (std::int64_t count : {0, 1, 2, 3, 7, 1000}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
      pool.run(count, [&](std::int64_t first, std::int64_t last, int thread) {
        EXPECT_LT(thread, threads);
        for (std::int64_t i = first; i < last; ++i)
          visits[static_cast<std::size_t>(i)].fetch_add(1);
      });
      for (const auto& v : visits) EXPECT_EQ(v.load(), 1);
    }
  }
}

// What is cut, and so what partial sums are of, depends on the shares alone.
TEST(ThreadPool, SharesDoNotDependOnTheThreads) {
  for (const int threads : {1, 2, 3, 16, 40}) {
    ThreadPool pool(threads, 16);
    EXPECT_EQ(pool.threads(), 16);
    EXPECT_EQ(pool.physical_threads(), std::min(threads, 16));
    for (const std::int64_t count : {2, 5, 16, 1000}) {
      std::vector<std::int64_t> first_of(16, -1), last_of(16, -1);
      pool.run(count, [&](std::int64_t first, std::int64_t last, int share) {
        first_of[static_cast<std::size_t>(share)] = first;
        last_of[static_cast<std::size_t>(share)] = last;
      });
      for (std::int64_t s = 0; s < 16; ++s) {
        EXPECT_EQ(first_of[static_cast<std::size_t>(s)], count * s / 16) << threads;
        EXPECT_EQ(last_of[static_cast<std::size_t>(s)], count * (s + 1) / 16) << threads;
      }
    }
  }
}

TEST(ThreadPool, ManyShortLoopsFollowEachOther) {
  ThreadPool pool(3);
  std::atomic<std::int64_t> sum{0};
  for (int i = 0; i < 2000; ++i)
    pool.run(3, [&](std::int64_t first, std::int64_t last, int) { sum.fetch_add(last - first); });
  EXPECT_EQ(sum.load(), 6000);
}

}  // namespace
}  // namespace engine
