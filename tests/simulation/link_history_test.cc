// The store's state machines with patience for broken connections: seeded cuts that lose nothing,
// and deaths that are named as early as without cuts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/many_histories.h"
#include "tests/simulation/simulated_rank.h"
#include "tests/simulation/virtual_network.h"

namespace simulation {
namespace {

using End = SimulatedRank::End;

constexpr milliseconds kBeat(1000), kLinkPatience(30'000);
long continued_sessions = 0, reported_breaks = 0;  // of all histories

// Steps in which every rank also counts in the store, with cuts between rank 0 and others.
class CutRun {
 public:
  // Routers let nothing in to some of the ranks.
  explicit CutRun(std::uint64_t seed, bool has_routers = false)
      : network_(seed), dice_(network_.dice()), kind_(seed % 10), start_(network_.now()) {
    world_ = static_cast<int>(dice_.between(2, 4));
    history_.schedule = std::to_string(world_) + " ranks";
    for (int r = 0; r < world_; ++r) {
      auto rank = std::make_unique<SimulatedRank>(
          network_, RankOptions{.rank = r,
                                .world_size = world_,
                                .number = r,
                                .uses_all = true,
                                .counts_steps = true,
                                .link_patience = kLinkPatience,
                                .data_patience = milliseconds(has_routers ? 30'000 : 0)});
      ranks_.push_back(rank.get());
      network_.add(std::move(rank));
    }
    for (int r = 1; r < world_ && has_routers; ++r) add_router(r);
    if (kind_ == 9) {
      add_cut(milliseconds(45'000), milliseconds(dice_.between(2'000, 9'000)));
      return;
    }
    for (auto count = dice_.between(kind_ < 6 ? 1 : 0, 4); count > 0; --count)
      add_cut(milliseconds(dice_.between(50, 6'000)), milliseconds(dice_.between(2'000, 12'000)));
    if (kind_ == 5) add_cut(milliseconds(20'000), milliseconds(dice_.between(2'000, 12'000)));
    if (kind_ >= 6) add_end(kind_ == 8, has_routers && kind_ == 7);
  }

  History check() {
    network_.run(start_ + std::chrono::minutes(6));
    history_.seconds = std::chrono::duration<double>(network_.now() - start_).count();
    for (const SimulatedRank* r : ranks_) {
      ++history_.ends[r->outcome().end == End::kFinished ? "finished" : "other"];
      continued_sessions += r->times_connected_again();
      for (const std::string& notice : r->outcome().of_server)
        reported_breaks += notice.starts_with("lost the rendezvous connection") ? 1 : 0;
      for (const std::string& what : r->outcome().wrong) history_.wrong.push_back(what);
    }
    for (int r = 1; r < world_; ++r) check_no_return_after_end(r);
    if (kind_ < 6) all_finish();
    if (kind_ == 6 || kind_ == 7 || kind_ == 8) the_dead_is_named();
    if (kind_ == 9) the_cut_is_named();
    return history_;
  }

 private:
  void note(milliseconds at, const std::string& what) {
    history_.schedule += "; " + std::to_string(at.count()) + " ms: " + what;
  }

  void add_router(int r) {
    const auto kind = dice_.between(r == 1 ? 0 : -1, 2);
    if (kind < 0) return;
    note(milliseconds(0), "rank " + std::to_string(r) + " is behind a router that " +
                              (kind == 0   ? "refuses"
                               : kind == 1 ? "accepts"
                                           : "drops"));
    network_.put_behind(static_cast<VirtualNetwork::Router>(kind), r);
  }

  // Between rank 0 and another one. Their connection to the store may break, with what is under
  // way, before or after it, or stay.
  void add_cut(milliseconds length, milliseconds at) {
    ++history_.faults;
    const int r = static_cast<int>(dice_.between(1, world_ - 1));
    const auto breaks = dice_.between(0, 2), ways = dice_.between(0, 3);
    note(at, "ranks 0 and " + std::to_string(r) + " are cut for " + std::to_string(length.count()) +
                 " ms, kind " + std::to_string(breaks) + ", " + std::to_string(ways));
    network_.at(start_ + at, [this, r, breaks, ways] {
      if (breaks == 1) network_.lose(0, r, Port::kStore);
      if (ways != 1) network_.cut_one_way(r, 0);
      if (ways != 2) network_.cut_one_way(0, r);
    });
    network_.at(start_ + at + length, [this, r, breaks] {
      network_.heal(0, r);
      if (breaks == 2) network_.lose(0, r, Port::kStore);
    });
    quiet_from_ = std::max(quiet_from_, start_ + at + length);
    cut_ = r;
  }

  // A kernel resets a connection if there is something that its process has not read.
  void add_end(bool pauses, bool resets) {
    ended_ = static_cast<int>(dice_.between(0, world_ - 1));
    const milliseconds at(dice_.between(2'500, 8'000));
    note(at, "rank " + std::to_string(*ended_) +
                 (pauses   ? " is stopped"
                  : resets ? " is killed, and its connection reset"
                           : " is killed"));
    end_at_ = start_ + at;
    is_hidden_end_ = network_.router_of(*ended_) && (pauses || resets);
    network_.at(end_at_, [this, pauses, resets] {
      is_over_ = ranks_[static_cast<std::size_t>(*ended_)]->outcome().end != End::kRunning;
      if (resets && *ended_ != 0) network_.lose(0, *ended_, Port::kStore);
      if (pauses) {
        network_.pause(*ended_);
      } else {
        network_.exit(*ended_);
      }
    });
  }

  void all_finish() {
    for (int r = 0; r < world_; ++r) {
      const auto& o = outcome(r);
      if (o.end != End::kFinished)
        history_.wrong.push_back("rank " + std::to_string(r) + " did not finish: " + o.text);
    }
  }

  // As soon as the network is whole again, and at once if it is.
  void the_dead_is_named() {
    if (is_over_) return;
    const bool is_routed = network_.router_of(*ended_).has_value();
    const Time by =
        std::max(end_at_, quiet_from_) + 5 * kBeat + (is_routed ? kLinkPatience : milliseconds(0));
    const auto longest = is_hidden_end_            ? kLinkPatience + 2 * kBeat
                         : kind_ == 8 || is_routed ? 4 * kBeat
                                                   : kBeat;
    for (int r = 0; r < world_; ++r) {
      if (r == *ended_) continue;
      const auto& o = outcome(r);
      if (o.end != End::kFailed || (o.culprit != *ended_ && !is_consequence(o)))
        history_.wrong.push_back("rank " + std::to_string(r) + " does not name it: " + o.text);
      const Time at = history_.faults == 0 ? end_at_ + longest : by;
      if (is_hidden_end_ && history_.faults == 0 && o.at < end_at_ + kLinkPatience - kBeat)
        history_.wrong.push_back("rank " + std::to_string(r) + " ends too early: " + o.text);
      if (o.at > at)
        history_.wrong.push_back("rank " + std::to_string(r) + " ends " +
                                 std::to_string((o.at - at) / milliseconds(1)) +
                                 " ms too late: " + o.text);
    }
  }

  // Who is cut off from rank 0 may see first that another one, which was told, has ended.
  bool is_consequence(const SimulatedRank::Outcome& o) const {
    const auto& blamed = outcome(*o.culprit);
    return history_.faults > 0 && blamed.end == End::kFailed && blamed.at < o.at &&
           blamed.culprit == ended_;
  }

  void the_cut_is_named() {
    for (int r = 0; r < world_; ++r) {
      const auto& o = outcome(r);
      const std::string text = "rank " + std::to_string(r) + ": " + o.text;
      if (o.end != End::kFailed || (o.culprit != *cut_ && o.culprit != 0))
        history_.wrong.push_back(text);
      if (o.at < quiet_from_ - milliseconds(45'000) + kLinkPatience - kBeat ||
          o.at > quiet_from_ + milliseconds(5'000))
        history_.wrong.push_back("not after the patience: " + text);
      const bool knows = o.text.find(": rank ") != std::string::npos &&
                         o.text.find(" still reaches both") != std::string::npos;
      if (r != *cut_ && o.culprit == *cut_ && knows != (world_ > 2 && !network_.router_of(*cut_)))
        history_.wrong.push_back("does not tell what the others reach: " + text);
    }
  }

  void check_no_return_after_end(int r) {
    const auto& root = outcome(0);
    if (root.end != End::kFailed || root.culprit != r) return;
    const auto& rank = *ranks_[static_cast<std::size_t>(r)];
    if (outcome(r).end == End::kFinished || rank.connected_again_at() > root.at + 4 * kBeat)
      history_.wrong.push_back("rank " + std::to_string(r) + " was let in after: " + root.text);
  }

  const SimulatedRank::Outcome& outcome(int r) const {
    return ranks_[static_cast<std::size_t>(r)]->outcome();
  }

  VirtualNetwork network_;
  Dice& dice_;
  const std::uint64_t kind_;
  const Time start_;
  int world_ = 0;
  std::vector<SimulatedRank*> ranks_;
  std::optional<int> cut_, ended_;
  Time end_at_{}, quiet_from_{};
  bool is_over_ = false, is_hidden_end_ = false;  // an end that no kernel reports
  History history_;
};

History run_cut_history(std::uint64_t seed) { return CutRun(seed).check(); }

TEST(LinkCuts, LoseNothingAndTheDeadAreNamed) {
  continued_sessions = reported_breaks = 0;
  run_histories(run_cut_history, "ranks");
  std::printf("%ld sessions continued over a new connection, %ld breaks reported by rank 0\n",
              continued_sessions, reported_breaks);
  EXPECT_GT(continued_sessions, 0);
  EXPECT_GT(reported_breaks, 0);
}

History run_router_history(std::uint64_t seed) { return CutRun(seed, true).check(); }

TEST(LinkCuts, RanksBehindRoutersLoseNothingEither) {
  continued_sessions = reported_breaks = 0;
  run_histories(run_router_history, "ranks");
  std::printf("%ld sessions continued over a new connection, %ld breaks reported by rank 0\n",
              continued_sessions, reported_breaks);
  EXPECT_GT(continued_sessions, 0);
  EXPECT_GT(reported_breaks, 0);
}

// While a group starts, connections to the store break that carry the start, its acknowledgement,
// or the answer to that.
History run_start_history(std::uint64_t seed) {
  VirtualNetwork network(seed);
  Dice& dice = network.dice();
  const int world = static_cast<int>(dice.between(2, 4));
  History history;
  history.schedule = std::to_string(world) + " ranks";
  std::vector<SimulatedRank*> ranks;
  for (int r = 0; r < world; ++r) {
    auto rank =
        std::make_unique<SimulatedRank>(network, RankOptions{.rank = r,
                                                             .world_size = world,
                                                             .number = r,
                                                             .uses_all = true,
                                                             .counts_steps = true,
                                                             .link_patience = kLinkPatience});
    ranks.push_back(rank.get());
    network.add(std::move(rank));
  }
  const Time start = network.now();
  for (auto count = dice.between(1, 6); count > 0; --count) {
    ++history.faults;
    const int r = static_cast<int>(dice.between(1, world - 1));
    const milliseconds at(dice.between(0, 60));
    history.schedule += "; " + std::to_string(at.count()) + " ms: rank " + std::to_string(r) +
                        " loses its connection to rank 0";
    network.at(start + at, [&network, r] { network.lose(0, r, Port::kStore); });
  }
  network.run(start + std::chrono::minutes(6));
  history.seconds = std::chrono::duration<double>(network.now() - start).count();
  for (const SimulatedRank* rank : ranks) {
    const auto& outcome = rank->outcome();
    ++history.ends[outcome.end == End::kFinished ? "finished" : "other"];
    continued_sessions += rank->times_connected_again();
    if (outcome.end != End::kFinished)
      history.wrong.push_back("a rank did not finish: " + outcome.text);
    for (const std::string& what : outcome.wrong) history.wrong.push_back(what);
  }
  return history;
}

TEST(LinkCuts, AtTheStartLoseNothing) {
  continued_sessions = 0;
  run_histories(run_start_history, "ranks");
  std::printf("%ld sessions continued over a new connection\n", continued_sessions);
  EXPECT_GT(continued_sessions, 0);
}

TEST(LinkCuts, TheSameSeedGivesTheSameHistory) { expect_same_twice(run_cut_history); }

}  // namespace
}  // namespace simulation
