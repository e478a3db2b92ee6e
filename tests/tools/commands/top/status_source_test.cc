// Where `engine top` learns of a job by its address: what it knows, and how soon.
#include "tools/commands/top/status_source.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>

#include "backends/store/private_files.h"
#include "backends/store/store_server.h"
#include "io/base/time/deadline.h"
#include "tests/support/expect_contains.h"
#include "tests/support/time_limits.h"

namespace {

using tools::RunStatus;

constexpr const char* kSecret = "00112233445566778899aabbccddeeff";

// A job of two ranks that says what the test does.
class StatusSourceTest : public testing::Test {
 protected:
  StatusSourceTest() {
    setenv("ENGINE_SECRET", kSecret, 1);
    backends::StoreServerOptions options;
    options.listener = backends::listen_on({"127.0.0.1", 0});
    options.secret = backends::load_secret(kSecret, "");
    options.job.world_size = 2;
    server_ = std::make_unique<backends::StoreServer>(std::move(options));
    address_ = to_string(server_->endpoint());
  }
  ~StatusSourceTest() override { unsetenv("ENGINE_SECRET"); }
  void publish(std::int64_t step) {
    RunStatus status;
    status.progress.step = step;
    server_->set_status(run_status_json(status));
  }

  std::unique_ptr<backends::StoreServer> server_;
  std::string address_;
};

TEST_F(StatusSourceTest, TellsTheNewestUntilTheEnd) {
  publish(1);
  tools::StatusSource source("tcp://" + address_);
  EXPECT_EQ(source.status().progress.step, 1);
  publish(2);
  EXPECT_TRUE(test_support::eventually([&] { return source.status().progress.step == 2; }));
  server_.reset();
  EXPECT_TRUE(test_support::eventually([&] { return source.status().end == "ended"; }));
}

// Rank 0 may be stopped: how old the news are can only be shown by who does not wait for more.
TEST_F(StatusSourceTest, DoesNotWaitForNews) {
  publish(1);
  tools::StatusSource source(address_);
  const auto begin = std::chrono::steady_clock::now();
  for (int look = 0; look < 20; ++look) EXPECT_EQ(source.status().progress.step, 1);
  EXPECT_FALSE(test_support::is_past(begin, std::chrono::seconds(2)));
}

}  // namespace
