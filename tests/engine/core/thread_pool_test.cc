// Every index is visited once, whatever the number of threads.
#include "engine/core/thread_pool.h"

#include <gtest/gtest.h>

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
        for (std::int64_t i = first; i < last; ++i) visits[static_cast<std::size_t>(i)].fetch_add(1);
      });
      for (const auto& v : visits) EXPECT_EQ(v.load(), 1);
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
