// Jobs in order, on a thread of their own or not: order, waits, failures and the end.
#include "io/base/threads/ordered_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace {

using base::OrderedQueue;

TEST(OrderedQueue, MakesThoseThatArePostedInOrder) {
  for (const bool overlap : {true, false}) {
    std::vector<std::size_t> made;
    OrderedQueue queue([&](std::size_t number) { made.push_back(number); },
                       overlap ? "test" : nullptr);
    queue.post(2);
    queue.wait(1);
    queue.post(5);
    queue.post(3);  // takes nothing back
    queue.wait_for_all();
    EXPECT_EQ(made, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
    EXPECT_EQ(queue.wait_idle(), 5u);
    EXPECT_FALSE(queue.is_busy());
  }
}

TEST(OrderedQueue, RethrowsAndMakesNoneAfterAFailure) {
  for (const bool overlap : {true, false}) {
    std::atomic<int> made{0};
    OrderedQueue queue(
        [&](std::size_t number) {
          if (number == 1) throw std::runtime_error("the second failed");
          ++made;
        },
        overlap ? "test" : nullptr);
    queue.post(3);
    EXPECT_THROW(queue.wait(3), std::runtime_error);
    EXPECT_EQ(queue.wait_idle(), 1u);
    queue.post(4);
    EXPECT_THROW(queue.wait(4), std::runtime_error);
    EXPECT_EQ(made, 1);
    EXPECT_FALSE(queue.is_busy());
  }
}

TEST(OrderedQueue, IsBusyWhileOneIsInProgressAndEndsAfterIt) {
  std::atomic<bool> begun{false}, go_on{false};
  std::atomic<int> made{0};
  {
    OrderedQueue queue(
        [&](std::size_t) {
          begun = true;
          begun.notify_all();
          go_on.wait(false);
          ++made;
        },
        "test");
    queue.post(1);
    begun.wait(false);
    EXPECT_TRUE(queue.is_busy());
    go_on = true;
    go_on.notify_all();
  }
  EXPECT_EQ(made, 1);
}

}  // namespace
