// Jobs of a thread of its own: order, failures, the end.
#include "io/base/threads/task_queue.h"
#include "tests/support/error_of.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

namespace {

TEST(TaskQueue, AreDoneInOrderByAnotherThread) {
  std::vector<int> done;
  std::thread::id worker;
  base::TaskQueue jobs;
  for (int i = 0; i < 100; ++i)
    jobs.add([&, i] {
      worker = std::this_thread::get_id();
      done.push_back(i);
    });
  jobs.finish();
  ASSERT_EQ(done.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[static_cast<std::size_t>(i)], i);
  EXPECT_NE(worker, std::this_thread::get_id());
}

TEST(TaskQueue, EndWithTheFirstFailure) {
  int after = 0;
  base::TaskQueue jobs;
  jobs.add([] { throw std::runtime_error("the disk is full"); });
  jobs.add([&] { ++after; });
  EXPECT_EQ(test_support::error_of<std::runtime_error>([&] { jobs.finish(); }), "the disk is full");
  EXPECT_EQ(after, 0);
}

TEST(TaskQueue, AreDoneBeforeTheyAreForgotten) {
  int done = 0;
  {
    base::TaskQueue jobs;
    jobs.add([&] { ++done; });
  }
  EXPECT_EQ(done, 1);
}

}  // namespace
