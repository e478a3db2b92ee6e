// Signals as events.
#include "tools/launch/workers/signal_inbox.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/test_clock.h"

namespace {

// timeout(1) signals its child and then its own group, which the child belongs to.
TEST(SignalInbox, WhatAProcessRepeatsAtOnceCountsOnce) {
  test_support::TestClock clock;
  tools::SignalInbox inbox(clock);
  kill(getpid(), SIGTERM);
  EXPECT_EQ(inbox.take(), SIGTERM);
  kill(getpid(), SIGTERM);
  EXPECT_EQ(inbox.take(), std::nullopt);
  kill(getpid(), SIGINT);
  EXPECT_EQ(inbox.take(), SIGINT) << "another request";
  clock.advance(std::chrono::milliseconds(250));
  kill(getpid(), SIGINT);
  EXPECT_EQ(inbox.take(), SIGINT) << "a second request";
}

}  // namespace
