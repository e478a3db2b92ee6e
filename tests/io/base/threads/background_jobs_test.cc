// Jobs of a thread of its own: order, failures, the end.
#include "io/base/threads/background_jobs.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

namespace {

TEST(BackgroundJobs, AreDoneInOrderByAnotherThread) {
  std::vector<int> done;
  std::thread::id worker;
  base::BackgroundJobs jobs;
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

TEST(BackgroundJobs, EndWithTheFirstFailure) {
  int after = 0;
  base::BackgroundJobs jobs;
  jobs.add([] { throw std::runtime_error("the disk is full"); });
  jobs.add([&] { ++after; });
  try {
    jobs.finish();
    ADD_FAILURE() << "no exception";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the disk is full");
  }
  EXPECT_EQ(after, 0);
}

TEST(BackgroundJobs, AreDoneBeforeTheyAreForgotten) {
  int done = 0;
  {
    base::BackgroundJobs jobs;
    jobs.add([&] { ++done; });
  }
  EXPECT_EQ(done, 1);
}

}  // namespace
