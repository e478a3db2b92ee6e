// Following a job from outside: what rank 0 publishes, to whom, and until when.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend_error.h"
#include "backends/store/status_feed.h"
#include "backends/store/store_server.h"
#include "io/base/time/deadline.h"
#include "tests/support/expect_contains.h"
#include "tests/support/time_limits.h"

namespace {

using namespace std::chrono_literals;
using backends::Secret;
using backends::StatusFeed;

backends::Deadline soon() { return base::deadline_in(test_support::deadline(10s)); }

// Whether it gives this, perhaps after earlier texts.
bool comes_to(StatusFeed& feed, const std::optional<std::string>& text) {
  std::optional<std::string> given = feed.next(soon());
  while (given && given != text) given = feed.next(soon());
  return given == text;
}

// Why nothing comes any more, after what came before; "": it ended in order.
std::string loss_of(StatusFeed& feed) {
  try {
    while (feed.next(soon())) {
    }
  } catch (const backends::PeerError& error) {
    return error.what();
  }
  return "";
}

// A job of two ranks, none of which has come.
class StatusFeedTest : public ::testing::Test {
 protected:
  StatusFeedTest() {
    backends::StoreServerOptions options;
    options.listener = backends::listen_on({"127.0.0.1", 0});
    options.secret = secret_;
    options.job.world_size = 2;
    options.job.job = "a job";
    options.job.build = "of a build";
    options.notice = [this](const std::string& text) { notices_ += text + "\n"; };
    server_ = std::make_unique<backends::StoreServer>(std::move(options));
    address_ = server_->endpoint();
  }
  StatusFeed follow() { return {address_, secret_, soon()}; }

  Secret secret_{"a secret", "the test"};
  std::string notices_;
  std::unique_ptr<backends::StoreServer> server_;
  backends::Endpoint address_;
};

TEST_F(StatusFeedTest, TellsTheNewestUntilTheJobEnds) {
  StatusFeed early = follow();
  server_->set_status("one");
  EXPECT_EQ(early.next(soon()), "one");
  StatusFeed late = follow();
  EXPECT_EQ(late.next(soon()), "one");
  server_->set_status("two");
  EXPECT_EQ(early.next(soon()), "two");
  server_->set_status("the last");
  EXPECT_FALSE(early.has_ended());
  server_.reset();
  EXPECT_EQ(early.next(soon()), "the last");
  EXPECT_EQ(early.next(soon()), std::nullopt);
  EXPECT_TRUE(early.has_ended());
  EXPECT_EQ(early.next(soon()), std::nullopt);
}

TEST_F(StatusFeedTest, SaysWhoHasNotJoined) {
  StatusFeed feed = follow();
  EXPECT_TRUE(test_support::eventually(
      [&] { return !feed.next(base::deadline_in(10ms)) && feed.missing().has_value(); }));
  EXPECT_EQ(feed.missing(), (std::vector<int>{0, 1}));
}

TEST_F(StatusFeedTest, SaysWhyAGroupDidNotForm) {
  StatusFeed feed = follow();
  server_->give_up(backends::RefusalKind::kPeer, "missing 1 of 2 ranks: 1");
  server_.reset();
  EXPECT_CONTAINS(loss_of(feed), "missing 1 of 2 ranks: 1");
}

// As when its process is killed: nobody knows what became of the job.
TEST(StatusFeedOfAKilledJob, IsNotAnEnd) {
  const Secret secret{"a secret", "the test"};
  backends::Socket listener = backends::listen_on({"127.0.0.1", 0});
  const backends::Endpoint address = backends::local_endpoint(listener.fd());
  const pid_t rank = fork();
  if (rank == 0) {
    backends::StoreServerOptions options;
    options.listener = std::move(listener);
    options.secret = secret;
    options.job.world_size = 2;
    backends::StoreServer server(std::move(options));
    server.set_status("training");
    for (;;) pause();
  }
  listener.close();
  StatusFeed feed(address, secret, soon());
  EXPECT_EQ(feed.next(soon()), "training");
  kill(rank, SIGKILL);
  waitpid(rank, nullptr, 0);
  EXPECT_VALUES(loss_of(feed), "rank 0 " + to_string(address) + " lost;");
  EXPECT_FALSE(feed.has_ended());
}

TEST(StatusFeedOfAStoppedJob, SaysThatNobodyAnswers) {
  const backends::Socket silent = backends::listen_on({"127.0.0.1", 0});  // the kernel accepts
  try {
    const StatusFeed feed(backends::local_endpoint(silent.fd()), {"a secret of a job", "the test"},
                          base::deadline_in(100ms));
    FAIL() << "connected";
  } catch (const backends::PeerError& error) {
    EXPECT_VALUES(error.what(),
                  to_string(backends::local_endpoint(silent.fd())) + ": accepts stopped");
  }
}

TEST_F(StatusFeedTest, LargeOnesPass) {
  StatusFeed feed = follow();
  const std::string text(8 << 20, 'x');
  server_->set_status(text);
  EXPECT_EQ(feed.next(soon()), text);
}

TEST_F(StatusFeedTest, SilenceEndsAtTheDeadline) {
  StatusFeed feed = follow();
  EXPECT_EQ(feed.next(base::deadline_in(50ms)), std::nullopt);
  EXPECT_FALSE(feed.has_ended());
  server_->set_status("now");
  EXPECT_EQ(feed.next(soon()), "now");
}

TEST_F(StatusFeedTest, NeedsTheSecret) {
  server_->set_status("nobody else's business");
  try {
    const StatusFeed feed(address_, {"another secret of a job", "ENGINE_SECRET"}, soon());
    FAIL() << "connected";
  } catch (const backends::AuthenticationError& error) {
    EXPECT_VALUES(error.what(), "proved secret");
    EXPECT_CONTAINS(error.what(), "ENGINE_SECRET");
  }
  server_.reset();
  EXPECT_CONTAINS(notices_, "refused a connection");
}

TEST_F(StatusFeedTest, BeyondTheMostTheOldestGivesWay) {
  std::vector<StatusFeed> feeds;
  feeds.reserve(backends::kMaxObservers + 1);
  for (std::size_t i = 0; i <= backends::kMaxObservers; ++i) {
    feeds.push_back(follow());
    server_->set_status(std::to_string(i));
    EXPECT_TRUE(comes_to(feeds.back(), std::to_string(i)));
  }
  EXPECT_VALUES(loss_of(feeds.front()),
                "newer observers: " + std::to_string(backends::kMaxObservers));
  server_->set_status("for the others");
  EXPECT_TRUE(comes_to(feeds[1], "for the others"));
}

TEST_F(StatusFeedTest, WhereNothingListensIsSaid) {
  server_.reset();
  try {
    follow();
    FAIL() << "connected";
  } catch (const backends::PeerError& error) {
    EXPECT_VALUES(error.what(), "no job " + to_string(address_) + ":");
  }
}

}  // namespace
