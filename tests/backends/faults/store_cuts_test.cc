// Connections of members to the store that break while the group works: the sessions continue, and
// every request counts once.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "backends/identity/join.h"
#include "tests/backends/group_harness.h"
#include "tests/backends/transport/cut_relay.h"
#include "tests/support/expect_contains.h"

namespace {

using namespace std::chrono_literals;
using backends::GroupOptions;
using backends::JoinedStore;
using group_harness::Listener;
using group_harness::open_listener;
using group_harness::options_for;
using group_harness::outcomes;
using link_job::CutRelay;

class StoreCuts : public testing::Test {
 protected:
  // Rank 1 connects through a relay.
  GroupOptions options(int rank, int world_size = 2) {
    GroupOptions o = options_for(rank, world_size, listener_.port);
    if (rank == 0) o.listen.fd = listener_.fd;
    if (rank == 1)
      o.init_method =
          "tcp://" + std::string(CutRelay::kHost) + ":" + std::to_string(listener_.port);
    o.notice = [this, rank](const std::string& text) {
      const std::lock_guard lock(mutex_);
      notices_ += "[" + std::to_string(rank) + "] " + text + "\n";
    };
    return o;
  }

  Listener listener_ = open_listener();
  std::mutex mutex_;
  std::string notices_;
};

TEST_F(StoreCuts, EveryRequestCountsOnce) {
  constexpr int kRounds = 300;
  const std::vector<link_job::Cut> cuts = {{20'000}, {500}, {1}, {9'000, 3}, {30'000}, {4'000, 1}};
  CutRelay relay(listener_.port, cuts);
  const auto errors = outcomes(2, [&](int rank) {
    JoinedStore joined = backends::join_store(options(rank));
    const std::string own = "count of " + std::to_string(rank), text(700, 'x');
    for (int i = 1; i <= kRounds; ++i) {
      ASSERT_EQ(joined.store->add(own, 1), i);
      joined.store->set(own + " as text", text + std::to_string(i));
      ASSERT_EQ(joined.store->get(own + " as text", 60s), text + std::to_string(i));
      joined.store->add("all", 1);
    }
    joined.store->set("end of " + std::to_string(rank), "");
    (void)joined.store->get("end of " + std::to_string(1 - rank), 60s);
    EXPECT_EQ(joined.store->add("all", 0), 2 * kRounds);
    joined.store->leave(60s);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
  EXPECT_EQ(relay.cuts_made(), cuts.size());
  for (const char* values :
       {"[0] lost rank 1 (", "[0] rank 1 back", "[1] lost rank 0 (", "[1] rank 0 back"})
    EXPECT_VALUES(notices_, values);
}

// The relay accepts no new connection, but rank 1 answers probes.
TEST_F(StoreCuts, ThatDoNotEndAreNamedWithTheRankThatReachesBoth) {
  CutRelay relay(listener_.port, {{20'000, 1 << 30}});
  const auto errors = outcomes(3, [&](int rank) {
    GroupOptions o = options(rank, 3);
    o.links.patience_ms = 3000;
    JoinedStore joined = backends::join_store(o);
    for (int i = 0; i < 300 && rank == 1; ++i) joined.store->set("key", std::string(700, 'x'));
    (void)joined.store->get("never", 60s);
  });
  const std::string cut = "link rank 0 rank 1 cut: rank 2";
  EXPECT_VALUES(notices_, "[0] " + cut);
  for (const int rank : {0, 2}) {
    EXPECT_VALUES(errors[static_cast<std::size_t>(rank)], "rank 1 (host (--link-patience); " + cut);
  }
}

TEST_F(StoreCuts, WithoutPatienceABreakEndsTheGroup) {
  CutRelay relay(listener_.port, {{20'000}});
  const auto errors = outcomes(2, [&](int rank) {
    GroupOptions o = options(rank);
    o.links.patience_ms = 0;
    JoinedStore joined = backends::join_store(o);
    for (int i = 0; i < 300; ++i) joined.store->set("key", std::string(700, 'x'));
    (void)joined.store->get("never", 60s);
  });
  EXPECT_CONTAINS(errors[0], "rank 1 (host ");
  EXPECT_CONTAINS(errors[1], "rank 0 (host ");
  EXPECT_EQ(notices_, "");
}

}  // namespace
