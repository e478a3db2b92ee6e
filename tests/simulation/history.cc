// Making schedules of failures, and judging how the ranks ended.
#include "tests/simulation/history.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>

#include "tests/simulation/simulated_rank.h"
#include "tests/simulation/virtual_network.h"

namespace simulation {
namespace {

using End = SimulatedRank::End;

// How long a rank may take to end after its peers know, or after it could know.
constexpr auto kTimeToEnd = std::chrono::seconds(15);
constexpr std::int64_t kHeartbeat = 1000;

std::string seconds_text(Time::duration d) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f s", std::chrono::duration<double>(d).count());
  return text;
}

std::string name(int rank) { return "rank " + std::to_string(rank); }

const char* end_name(End end) {
  switch (end) {
    case End::kRunning:
      return "running";
    case End::kFinished:
      return "finished";
    case End::kFailed:
      return "failed";
    case End::kNoGroup:
      return "no group";
    case End::kTimedOut:
      return "timed out";
    case End::kStopped:
      return "stopped";
  }
  return "";
}

class Run {
 public:
  explicit Run(std::uint64_t seed)
      : network_(seed), dice_(network_.dice()), start_(network_.now()) {
    world_ = static_cast<int>(dice_.between(2, 6));
    history_.schedule = std::to_string(world_) + " ranks";
    last_start_ = start_;
    if (seed % 20 == 7) {
      other_settings_ = some_rank();
      harmless_ = false;
      note(start_, name(*other_settings_) + " has another batch size");
    }
    for (int r = 0; r < world_; ++r) {
      const milliseconds after(dice_.chance(80) ? dice_.between(0, 500) : dice_.between(0, 10'000));
      starts_.push_back(start_ + after);
      last_start_ = std::max(last_start_, starts_.back());
      auto rank = std::make_unique<SimulatedRank>(
          network_, RankOptions{.rank = r,
                                .world_size = world_,
                                .batch_size = other_settings_ == r ? 32 : 64,
                                .starts_after = after});
      ranks_.push_back(rank.get());
      network_.add(std::move(rank));
    }
    quiet_from_ = last_start_;
    if (dice_.chance(20)) {
      network_.slow_down(milliseconds(dice_.between(10, 900)));
      slow_ = true;
      note(start_, "slow network");
    }
    for (std::int64_t count = dice_.between(0, 3); count > 0; --count) add_fault();
  }

  History judge() {
    const auto longest = std::chrono::minutes(12);
    network_.run(start_ + longest);
    history_.seconds = std::chrono::duration<double>(network_.now() - start_).count();
    for (const SimulatedRank* r : ranks_) ++history_.ends[end_name(r->outcome().end)];
    everyone_ends();
    everyone_is_in_one_group();
    culprits_are_culprits();
    reasons_are_told();
    the_store_remembers();
    other_settings_are_named();
    harmless_schedules_do_no_harm();
    return history_;
  }

 private:
  void note(Time at, const std::string& what) {
    history_.schedule += "; " + seconds_text(at - start_) + ": " + what;
  }
  void wrong(const std::string& what) { history_.wrong.push_back(what); }

  int some_rank() { return static_cast<int>(dice_.between(0, world_ - 1)); }
  Time some_time() { return start_ + milliseconds(dice_.between(0, 25'000)); }
  // Around what matters: less than a heartbeat, about three, many.
  milliseconds some_length() {
    switch (dice_.between(0, 3)) {
      case 0:
        return milliseconds(dice_.between(1, 2 * kHeartbeat));
      case 1:
        return milliseconds(dice_.between(2 * kHeartbeat, 4 * kHeartbeat));
      case 2:
        return milliseconds(dice_.between(3 * kHeartbeat, 10 * kHeartbeat));
      default:
        return milliseconds(dice_.between(10 * kHeartbeat, 60 * kHeartbeat));
    }
  }

  // Silences may follow each other, and heartbeats are late on a slow network.
  void is_silent_for(milliseconds length) {
    silence_ += length;
    harmless_ = harmless_ && silence_ <= milliseconds((slow_ ? 1 : 2) * kHeartbeat);
  }

  void add_fault() {
    ++history_.faults;
    const int r = some_rank();
    const Time at = some_time();
    const milliseconds length = some_length();
    switch (dice_.between(0, 5)) {
      case 0:
        note(at, name(r) + " is paused for " + seconds_text(length));
        network_.at(at, [this, r] { network_.pause(r); });
        network_.at(at + length, [this, r] { network_.thaw(r); });
        quiet_from_ = std::max(quiet_from_, at + length);
        faulty_.insert(r);
        is_silent_for(length);
        return;
      case 1:
        note(at, name(r) + " is killed");
        network_.at(at, [this, r] {
          if (ranks_[static_cast<std::size_t>(r)]->outcome().end == End::kRunning)
            killed_.insert(r);
          network_.exit(r);
        });
        quiet_from_ = std::max(quiet_from_, at);
        faulty_.insert(r);
        harmless_ = false;
        return;
      case 2: {
        const int peer = (r + static_cast<int>(dice_.between(1, world_ - 1))) % world_;
        note(at, name(r) + " and " + name(peer) + " are cut off for " + seconds_text(length));
        network_.at(at, [this, r, peer] { network_.cut(r, peer); });
        network_.at(at + length, [this, r, peer] { network_.heal(r, peer); });
        quiet_from_ = std::max(quiet_from_, at + length);
        faulty_.insert({r, peer});
        if (r == 0 || peer == 0) is_silent_for(length);
        return;
      }
      case 3: {
        if (r == 0) return;
        // Often around the start of the group, when a rank may still connect again.
        const Time then = dice_.chance(50) ? at : last_start_ + milliseconds(dice_.between(0, 40));
        const milliseconds later(dice_.chance(50) ? 0 : dice_.between(1, 10'000));
        note(then, "connections of " + name(r) + " to rank 0 break, which rank 0 notices " +
                       seconds_text(later) + " later");
        network_.at(then, [this, r, later] {
          // Later a rank cannot know whether its acknowledgement of the start has arrived.
          harmless_ = harmless_ && !ranks_[0]->has_started_group();
          network_.reset(r, 0, later);
        });
        quiet_from_ = std::max(quiet_from_, then + later);
        faulty_.insert({r, 0});
        harmless_ = harmless_ && !slow_;
        return;
      }
      case 4: {
        const bool says_why = dice_.chance(70);
        note(at, name(r) + (says_why ? " gives up" : " ends without a word"));
        network_.at(
            at, [this, r, says_why] { ranks_[static_cast<std::size_t>(r)]->give_up(says_why); });
        quiet_from_ = std::max(quiet_from_, at);
        faulty_.insert(r);
        harmless_ = false;
        return;
      }
      default:
        note(at, name(r) + " is asked to stop");
        network_.at(at, [this, r] { ranks_[static_cast<std::size_t>(r)]->stop(); });
        quiet_from_ = std::max(quiet_from_, at);
        faulty_.insert(r);
        harmless_ = false;
        return;
    }
  }

  // Nobody waits for long once others have ended or all is quiet.
  void everyone_ends() {
    std::optional<Time> known;  // the first end that is not a success
    for (int r = 0; r < world_; ++r) {
      const auto& o = ranks_[static_cast<std::size_t>(r)]->outcome();
      if (o.end != End::kRunning && o.end != End::kFinished)
        known = std::min(known.value_or(o.at), o.at);
    }
    for (int r = 0; r < world_; ++r) {
      if (killed_.contains(r)) continue;
      const auto& o = ranks_[static_cast<std::size_t>(r)]->outcome();
      const Time by = o.group.empty() ? quiet_from_ + milliseconds(60'000) + kTimeToEnd
                      : known         ? std::max(*known, quiet_from_) + kTimeToEnd
                                      : quiet_from_ + milliseconds(20 * 10'000) + kTimeToEnd;
      if (o.end == End::kRunning) {
        wrong(name(r) + " never ends");
      } else if (o.at > by) {
        wrong(name(r) + " ends " + seconds_text(o.at - by) + " too late (" + end_name(o.end) +
              ": " + o.text + ")");
      }
    }
  }

  void everyone_is_in_one_group() {
    std::set<std::string> groups;
    for (const SimulatedRank* r : ranks_) {
      if (!r->outcome().group.empty()) groups.insert(r->outcome().group);
    }
    if (groups.size() > 1) wrong("ranks are in different groups");
  }

  void culprits_are_culprits() {
    std::set<int> named;
    for (int r = 0; r < world_; ++r) {
      const auto& o = ranks_[static_cast<std::size_t>(r)]->outcome();
      if (o.end != End::kFailed || o.gave_up || killed_.contains(r)) continue;
      // While rank 0 cannot give its verdict, a rank that has lost its connection to a faulty one
      // may end, and be what rank 0 notices first.
      const auto& blamed = ranks_[static_cast<std::size_t>(*o.culprit)]->outcome();
      const bool has_cause = blamed.end == End::kNoGroup ||
                             (blamed.end == End::kFailed && faulty_.contains(*blamed.culprit));
      const bool consequence = (history_.faults > 1 || slow_) && blamed.at < o.at && has_cause;
      if (!faulty_.contains(*o.culprit) && !consequence)
        wrong(name(r) + " blames " + name(*o.culprit) + ", to which nothing happened: " + o.text);
      // Rank 0 waits for who has not confirmed the start; its verdict then comes late by a slow
      // network.
      if (history_.faults == 1 && !slow_ && !faulty_.contains(0) &&
          o.text.starts_with("lost the connection"))
        wrong(name(r) + " was not told by rank 0 who failed: " + o.text);
      if (!faulty_.contains(r)) named.insert(*o.culprit);
    }
    if (history_.faults == 1 && named.size() > 1) wrong("the others do not blame the same rank");
  }

  // Of a single rank that gives up, or leaves before the group has started.
  void reasons_are_told() {
    if (history_.faults != 1 || faulty_.size() != 1) return;
    const int r = *faulty_.begin();
    const auto& one = ranks_[static_cast<std::size_t>(r)]->outcome();
    const bool left_early = one.end == End::kStopped && one.group.empty();
    for (int other = 0; other < world_; ++other) {
      const auto& o = ranks_[static_cast<std::size_t>(other)]->outcome();
      if (other == r) continue;
      if (one.gave_up && o.end == End::kFailed &&
          o.text.find(SimulatedRank::kReason) == std::string::npos)
        wrong(name(other) + " does not know why " + name(r) + " gave up: " + o.text);
      if (left_early && o.end == End::kNoGroup && o.text == "ranks are missing" &&
          std::ranges::find(o.left, r) == o.left.end())
        wrong(name(other) + " does not know that " + name(r) + " has left again");
    }
  }

  // No group forms, and without other faults all hear why as soon as they have met.
  void other_settings_are_named() {
    if (!other_settings_) return;
    for (int r = 0; r < world_; ++r) {
      const auto& o = ranks_[static_cast<std::size_t>(r)]->outcome();
      if (!o.group.empty()) wrong(name(r) + " is in a group with other settings");
      // Who starts when rank 0 has ended finds nobody.
      const bool finds_rank_0 = starts_[static_cast<std::size_t>(r)] <= ranks_[0]->outcome().at;
      if (history_.faults > 0 || !finds_rank_0) continue;
      if (o.end != End::kNoGroup || o.text.find("--batch-size") == std::string::npos)
        wrong(name(r) + " does not know of the other settings: " + end_name(o.end) + ": " + o.text);
      if (o.at > last_start_ + kTimeToEnd) wrong(name(r) + " hears of other settings too late");
    }
  }

  void the_store_remembers() {
    std::set<std::int64_t> sums;
    for (int r = 0; r < world_; ++r) {
      const auto& o = ranks_[static_cast<std::size_t>(r)]->outcome();
      if (!o.wrong_reply.empty()) wrong(name(r) + " was answered " + o.wrong_reply);
      if (o.sum != 0 && !sums.insert(o.sum).second)
        wrong("two ranks were told the sum " + std::to_string(o.sum));
    }
  }

  void harmless_schedules_do_no_harm() {
    if (!harmless_) return;
    for (int r = 0; r < world_; ++r) {
      const auto& o = ranks_[static_cast<std::size_t>(r)]->outcome();
      if (o.end != End::kFinished)
        wrong(name(r) + " did not finish: " + end_name(o.end) + ": " + o.text);
    }
  }

  VirtualNetwork network_;
  Dice& dice_;
  const Time start_;
  int world_ = 0;
  std::vector<SimulatedRank*> ranks_;
  std::vector<Time> starts_;  // by rank
  Time last_start_, quiet_from_;
  std::set<int> faulty_, killed_;
  std::optional<int> other_settings_;  // the rank that has them
  bool harmless_ = true, slow_ = false;
  milliseconds silence_{0};  // of all that rank 0 may notice
  History history_;
};

}  // namespace

History run_history(std::uint64_t seed) { return Run(seed).judge(); }

}  // namespace simulation
