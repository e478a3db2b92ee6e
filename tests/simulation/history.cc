// Makes schedules of failures, and checks how the ranks ended.
#include "tests/simulation/history.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <set>

#include "tests/simulation/other_settings.h"
#include "tests/simulation/simulated_rank.h"
#include "tests/simulation/store_visitor.h"
#include "tests/simulation/virtual_network.h"

namespace simulation {
namespace {

using End = SimulatedRank::End;

// How long a rank may take to end after its peers know, or after it could know.
constexpr auto kTimeToEnd = std::chrono::seconds(15);
constexpr std::int64_t kHeartbeat = 1000;
constexpr auto kTimeToTell = milliseconds(1'000);  // who is missing

std::string seconds_text(Time::duration d) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f s", std::chrono::duration<double>(d).count());
  return text;
}

std::string name(int rank) { return "rank " + std::to_string(rank); }
std::string host(int rank) { return "n" + std::to_string(rank); }

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

bool is_in(const std::string& part, const std::string& text) {
  return text.find(part) != std::string::npos;
}

class Run {
 public:
  explicit Run(std::uint64_t seed)
      : network_(seed), dice_(network_.dice()), more_dice_(~seed), start_(network_.now()) {
    // By the seed's number, so that the other histories stay what they are.
    const std::uint64_t number = seed / 20;
    kind_ = seed % 20;
    world_ = static_cast<int>(dice_.between(2, 6));
    history_.schedule = std::to_string(world_) + " ranks";
    last_start_ = start_;
    if (kind_ == 7) {
      other_settings_ = some_rank();
      contradiction_ = contradiction(number);
      harmless_ = false;
      note(start_, name(*other_settings_) + " has other settings");
    }
    const bool stalls_abort = kind_ == 9 && number % 3 != 0 && more_dice_.chance(50);
    for (int r = 0; r < world_; ++r) {
      const milliseconds after(dice_.chance(80) ? dice_.between(0, 500) : dice_.between(0, 10'000));
      starts_.push_back(start_ + after);
      last_start_ = std::max(last_start_, starts_.back());
      auto rank = std::make_unique<SimulatedRank>(
          network_, RankOptions{.rank = r,
                                .world_size = world_,
                                .number = r,
                                .settings = other_settings_ == r ? contradiction_.others
                                                                 : contradiction_.usual,
                                .starts_after = after,
                                .stall_abort = stalls_abort,
                                .uses_all = seed % 4 == 2});
      ranks_.push_back(rank.get());
      network_.add(std::move(rank));
    }
    processes_ = world_;
    quiet_from_ = last_start_;
    if (dice_.chance(20)) {
      network_.slow_down(milliseconds(dice_.between(10, 900)));
      slow_ = true;
      note(start_, "slow network");
    }
    if (seed % 4 == 3) network_.come_in_pieces();
    if (kind_ == 3) add_visitor(static_cast<Visit>(number % kVisits), milliseconds(9'000));
    if (kind_ == 7 && number % 2 == 0) add_visitor(Visit::kObserver, milliseconds(300));
    if (kind_ == 9) add_standstill(stalls_abort);
    if (kind_ == 13) add_restart();
    if (kind_ == 15) add_damage();
    const bool is_alone = kind_ == 3 || kind_ == 9 || kind_ == 13 || kind_ == 15;
    // Who contradicts may take the place of a rank that is lost before the start.
    if (is_alone && (number % 3 != 0 || (visitor_ != nullptr && visitor_->contradicts()))) return;
    for (std::int64_t count = dice_.between(0, 3); count > 0; --count) add_fault();
  }

  History check() {
    const auto longest = std::chrono::minutes(12);
    network_.run(start_ + longest);
    history_.seconds = std::chrono::duration<double>(network_.now() - start_).count();
    for (const SimulatedRank* r : ranks_) ++history_.ends[end_name(r->outcome().end)];
    everyone_ends();
    everyone_is_in_one_group();
    culprits_are_culprits();
    check_reported_reasons();
    the_store_remembers();
    other_settings_are_named();
    harmless_schedules_do_no_harm();
    who_is_missing_is_known();
    the_dead_are_described();
    standstills_are_reported();
    damage_is_noticed();
    if (visitor_ != nullptr) {
      if (visitor_->options().what == Visit::kObserver)
        the_observer_follows();
      else
        visitors_are_turned_away();
    }
    return history_;
  }

 private:
  void note(Time at, const std::string& what) {
    history_.schedule += "; " + seconds_text(at - start_) + ": " + what;
  }
  void wrong(const std::string& what) { history_.wrong.push_back(what); }

  SimulatedRank& rank(int r) { return *ranks_[static_cast<std::size_t>(r)]; }
  // Not the first.
  int some_other_rank() { return static_cast<int>(more_dice_.between(1, world_ - 1)); }
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
          is_rank_0_killed_ = is_rank_0_killed_ || r == 0;  // maybe while it lingers
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

  // One more process, as which something comes to the store. Those that are no ranks of this job do
  // no harm.
  void add_visitor(Visit what, milliseconds latest) {
    const int r = what == Visit::kTwin ? some_other_rank() : 0;
    const Time there = std::max(starts_[0], starts_[static_cast<std::size_t>(r)]);
    milliseconds after(more_dice_.between(0, latest.count()));
    // Behind its twin, which is the one that all know.
    if (what == Visit::kTwin)
      after = std::chrono::ceil<milliseconds>(there - start_) +
              milliseconds(more_dice_.between(1'000, latest.count()));
    auto visitor = std::make_unique<StoreVisitor>(network_, VisitOptions{.what = what,
                                                                         .number = processes_++,
                                                                         .rank = r,
                                                                         .world_size = world_,
                                                                         .comes_after = after});
    visitor_ = visitor.get();
    harmless_ = harmless_ && !visitor_->contradicts();
    note(start_ + after, visitor_->name() + " comes to the store");
    network_.add(std::move(visitor));
  }

  // A rank gets stuck while all train.
  void add_standstill(bool aborts) {
    ++history_.faults;
    const int r = static_cast<int>(more_dice_.between(0, world_ - 1));
    const auto kind = more_dice_.between(0, 2);
    standstill_ =
        Standstill{.rank = r,
                   .from = last_start_ + milliseconds(more_dice_.between(500, 8'000)),
                   .length = milliseconds(kind == 0   ? more_dice_.between(100, 8'500)
                                          : kind == 1 ? more_dice_.between(14'000, 19'000)
                                                      : more_dice_.between(27'000, 38'000)),
                   .reports = static_cast<int>(kind),
                   .aborts = aborts};
    const Time until = standstill_->from + standstill_->length;
    note(standstill_->from, name(r) + " is stuck for " + seconds_text(standstill_->length) +
                                (aborts ? ", and a stall ends the group" : ""));
    network_.at(standstill_->from, [this, r, until] { rank(r).get_stuck(until); });
    quiet_from_ = std::max(quiet_from_, until);
    faulty_.insert(r);
    harmless_ = harmless_ && (!aborts || (kind == 0 && !slow_));
  }

  // Before the start a rank may be ended, or killed, and come again as another process.
  void add_restart() {
    ++history_.faults;
    const int r = some_other_rank();
    const bool is_killed = more_dice_.chance(50);
    const Time at =
        more_dice_.chance(70)
            ? start_ + milliseconds(more_dice_.between(0, (last_start_ - start_) / milliseconds(1)))
            : start_ + milliseconds(more_dice_.between(0, 15'000));
    const milliseconds later(more_dice_.between(10, 3'000));
    note(at, name(r) + (is_killed ? " is killed" : " is asked to stop") + ", and started again " +
                 seconds_text(later) + " later");
    network_.at(at, [this, r, is_killed] {
      if (!is_killed) return rank(r).stop();
      if (rank(r).outcome().end == End::kRunning) killed_.insert(r);
      network_.exit(r);
    });
    network_.at(at + later, [this, r, later] {
      if (later >= kTimeToTell) who_waits_knows_of_the_absence_of(r);
      if (network_.is_running(r) || rank(r).has_trained() || ranks_[0]->has_started_group()) return;
      is_again_there_ = true;
      auto again = std::make_unique<SimulatedRank>(
          network_, RankOptions{.rank = r, .world_size = world_, .number = processes_++});
      killed_.erase(r);
      ranks_[static_cast<std::size_t>(r)] = again.get();
      starts_[static_cast<std::size_t>(r)] = network_.now();
      last_start_ = std::max(last_start_, network_.now());
      network_.add(std::move(again));
    });
    quiet_from_ = std::max(quiet_from_, at + later);
    faulty_.insert(r);
    harmless_ = harmless_ && !slow_;
  }

  void who_waits_knows_of_the_absence_of(int r) {
    if (history_.faults != 1 || slow_ || network_.is_running(r)) return;
    const Time then = network_.now() - kTimeToTell;
    if (rank(r).outcome().at > then) return;  // it came, and was told to stop, only now
    for (int other = 0; other < world_; ++other) {
      const bool has_been_there =
          other != r && starts_[0] < then && starts_[static_cast<std::size_t>(other)] < then;
      if (has_been_there && rank(other).takes_for_there(r))
        wrong(name(other) + " believes that " + name(r) + " is there");
    }
  }

  // Something of what a rank and the store say to each other is not what it was.
  void add_damage() {
    ++history_.faults;
    const int r = some_other_rank();
    const bool to_store = more_dice_.chance(50);
    const auto how = static_cast<VirtualNetwork::Damage>(more_dice_.between(0, 2));
    const Time at = last_start_ + milliseconds(more_dice_.between(200, 9'000));
    const char* const what[] = {" is changed", " comes twice", " is lost"};
    note(at, "what is sent next " + (to_store ? "by " + name(r) : "to " + name(r)) +
                 what[static_cast<int>(how)]);
    network_.at(at, [this, r, to_store, how] {
      is_group_damaged_ = ranks_[0]->has_started_group();
      network_.damage(to_store ? r : 0, to_store ? 0 : r, how);
    });
    quiet_from_ = std::max(quiet_from_, at);
    faulty_.insert({r, 0});
    harmless_ = false;
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
  void check_reported_reasons() {
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

  // No group forms, and without other faults all are told the reason as soon as they are connected.
  void other_settings_are_named() {
    if (!other_settings_) return;
    for (int r = 0; r < world_; ++r) {
      const auto& o = ranks_[static_cast<std::size_t>(r)]->outcome();
      if (!o.group.empty()) wrong(name(r) + " is in a group with other settings");
      // Who starts when rank 0 has ended finds nobody.
      const bool finds_rank_0 = starts_[static_cast<std::size_t>(r)] <= ranks_[0]->outcome().at;
      if (history_.faults > 0 || !finds_rank_0) continue;
      if (o.end != End::kNoGroup || !names_other_settings(o.text))
        wrong(name(r) + " does not know of the other settings: " + end_name(o.end) + ": " + o.text);
      if (o.at > last_start_ + kTimeToEnd) wrong(name(r) + " detects other settings too late");
    }
  }

  bool names_other_settings(const std::string& text) const {
    const auto member = [](int r) { return backends::member_text(r, host(r), 100 + r); };
    if (other_settings_ == 0)
      return is_in(member(0), text);  // it names the rank that connected first
    std::string expected = contradiction_.text;
    for (const auto& [word, who] : {std::pair("here ", 0), std::pair("there ", *other_settings_)})
      expected.replace(expected.find(word), std::strlen(word), member(who) + " ");
    return text == expected;
  }

  void the_store_remembers() {
    std::set<std::int64_t> sums;
    for (int r = 0; r < world_; ++r) {
      const auto& o = ranks_[static_cast<std::size_t>(r)]->outcome();
      if (o.end == End::kFinished && !rank(r).has_trained()) wrong(name(r) + " is in no group");
      for (const std::string& what : o.wrong) wrong(name(r) + " was told wrongly: " + what);
      if (o.sum != 0 && !sums.insert(o.sum).second)
        wrong("two ranks were told the sum " + std::to_string(o.sum));
    }
  }

  void harmless_schedules_do_no_harm() {
    if (!harmless_ || (kind_ == 13 && !is_again_there_)) return;
    for (int r = 0; r < world_; ++r) {
      const auto& o = ranks_[static_cast<std::size_t>(r)]->outcome();
      if (o.end != End::kFinished)
        wrong(name(r) + " did not finish: " + end_name(o.end) + ": " + o.text);
      if (slow_ || history_.faults > 0) continue;
      for (const std::string& what : o.outdated) wrong("rank 0 knows only that " + what);
    }
  }

  // Of a single rank that is killed, or stops, before the group has started.
  void who_is_missing_is_known() {
    if (history_.faults != 1 || faulty_.size() != 1 || faulty_.contains(0) || slow_) return;
    constexpr auto kSoon = std::chrono::seconds(2);
    for (int r = 0; r < world_; ++r) {
      const auto& o = rank(r).outcome();
      if (o.end != End::kNoGroup || o.text != "ranks are missing") continue;
      if (std::ranges::find(killed_, r) != killed_.end()) continue;
      std::vector<int> away = o.missing;
      away.insert(away.end(), o.left.begin(), o.left.end());
      for (const int k : killed_)
        if (std::ranges::find(o.missing, k) == o.missing.end())
          wrong(name(r) + " does not know that " + name(k) + " is missing");
      for (const int other : away) {
        const auto& theirs = rank(other).outcome();
        if (!faulty_.contains(other) && theirs.at > o.at + kSoon &&
            starts_[static_cast<std::size_t>(other)] + kSoon < o.at)
          wrong(name(r) + " takes " + name(other) + " for missing");
      }
    }
  }

  // Who is blamed by the store is named in full, with what it has said that it does.
  void the_dead_are_described() {
    for (int r = 0; r < world_; ++r) {
      const auto& o = rank(r).outcome();
      if (o.end != End::kFailed || o.text.starts_with("lost the connection") ||
          o.text.starts_with("this rank was silent") || o.text.starts_with("stalled"))
        continue;
      const int culprit = *o.culprit;
      if (culprit == r) {
        if (o.text.starts_with(name(r) + " ")) wrong(name(r) + " names itself: " + o.text);
        continue;
      }
      const bool is_first = kind_ != 13 || !faulty_.contains(culprit);
      if (!o.text.starts_with(name(culprit) + " (host " + host(culprit) + ", pid " +
                              (is_first ? std::to_string(100 + culprit) + ") " : "")))
        wrong(name(r) + " blames " + name(culprit) + ", and says: " + o.text);
      if (!killed_.contains(culprit) || history_.faults != 1 || slow_) continue;
      const auto& dead = rank(culprit).outcome();
      const std::string activity = dead.activity.empty() ? "unknown" : dead.activity;
      const bool is_known = o.text.ends_with("; last activity: " + activity);
      const bool is_rank_0 = culprit == 0 && (dead.steps < 4 || is_in("activity: step ", o.text));
      if (!is_known && !is_rank_0)
        wrong(name(r) + " does not know that " + name(culprit) + " was in '" + activity +
              "': " + o.text);
    }
  }

  void standstills_are_reported() {
    std::vector<std::string> reports;
    for (const std::string& notice : rank(0).outcome().of_server)
      if (notice.starts_with("no progress for ")) reports.push_back(notice);
    if (history_.faults == 0 && !reports.empty()) wrong("a stall is reported: " + reports[0]);
    if (!standstill_ || history_.faults != 1 || slow_) return;
    const Standstill& s = *standstill_;
    const std::string text = name(s.rank) + " in no collective (" + SimulatedRank::kStuck + ")";
    const int expected = s.aborts ? std::min(s.reports, 1) : s.reports;
    if (std::ssize(reports) != expected)
      wrong(std::to_string(reports.size()) + " reports of a standstill");
    for (const std::string& report : reports) {
      bool names_others = true;
      for (int r = 0; r < world_; ++r)
        names_others =
            names_others &&
            (r == s.rank || is_in("; " + name(r) + " has nothing from " + name(s.rank), report));
      if (!is_in(text, report) || !is_in(" in step ", report) || !names_others)
        wrong("a standstill is reported as: " + report);
    }
    if (s.rank != 0 && rank(s.rank).outcome().notices != reports)
      wrong(name(s.rank) + " does not know that it is waited for");
    if (!s.aborts || s.reports == 0) return;
    for (int r = 0; r < world_; ++r) {
      const auto& o = rank(r).outcome();
      if (o.end != End::kFailed || o.culprit != s.rank ||
          !o.text.starts_with("stalled, ended as --stall-abort asks: no progress for 1") ||
          o.at > s.from + std::chrono::seconds(14))
        wrong(name(r) + " was not ended by the stall of " + name(s.rank) + ": " + end_name(o.end) +
              ": " + o.text);
    }
  }

  void damage_is_noticed() {
    const Time at = network_.damaged_at();
    if (at == Time{} || history_.faults != 1 || slow_ || !is_group_damaged_) return;
    for (int r = 0; r < world_; ++r) {
      const auto& o = rank(r).outcome();
      if (is_in("damaged or forged", o.text) || o.at < at + std::chrono::seconds(2)) return;
    }
    wrong("damage was not noticed");
  }

  bool is_quiet() const { return history_.faults == 0 && !slow_ && !other_settings_; }

  void the_observer_follows() {
    const StoreVisitor& v = *visitor_;
    const auto& root = rank(0).outcome();
    if (!v.understands()) wrong("the observer was told what it does not understand");
    if (v.state() == StoreVisitor::State::kWelcome && !is_rank_0_killed_ && v.goodbye().empty())
      wrong("the observer does not know that the job has ended");
    const Time came = v.connected_at();
    if (v.goodbye() == "left" && root.end == End::kNoGroup)
      wrong("the observer believes that the job has ended in order");
    if (!is_quiet() || came == Time{} || root.at < came + std::chrono::seconds(1)) return;
    if (v.state() != StoreVisitor::State::kWelcome || v.status() != "step 20" ||
        v.goodbye() != "left" || !v.knows_of_start() || !v.missing()) {
      wrong("the observer knows of '" + v.status() + "' and of the end '" + v.goodbye() + "'");
      return;
    }
    if (came < starts_[0] + std::chrono::seconds(1)) return;
    for (int r = 0; r < world_; ++r) {
      const Time there = starts_[static_cast<std::size_t>(r)];
      const bool is_missing = std::ranges::find(*v.missing(), r) != v.missing()->end();
      if (is_missing ? there + std::chrono::seconds(1) < came : there > came + milliseconds(100))
        wrong("the observer believes that " + name(r) + (is_missing ? " is missing" : " is there"));
    }
  }

  void visitors_are_turned_away() {
    using State = StoreVisitor::State;
    const StoreVisitor& v = *visitor_;
    const auto& root = rank(0).outcome();
    const Time came = v.connected_at();
    if (came == Time{} || !is_quiet()) return;
    if (v.state() == State::kWelcome) return wrong("a visitor was welcomed");
    const Visit what = v.options().what;
    if (what == Visit::kNoise || what == Visit::kSilence) {
      const auto stay = v.ended_at() - came;
      const milliseconds least(what == Visit::kNoise ? 0 : 5'000), most = least + milliseconds(600);
      if (root.at > came + most && (v.ended_at() == Time{} || stay < least || stay > most))
        wrong("a visitor that says nothing stays for " + seconds_text(stay));
      return;
    }
    // Before the start it ends the group; else who comes in the end may find nobody.
    if ((!v.contradicts() || rank(0).has_trained()) && root.at < came + milliseconds(300)) return;
    const std::string text = v.expected_text();
    if (std::ranges::none_of(root.of_server, [&](const std::string& notice) {
          return notice.starts_with("refused a connection: ") && is_in(text, notice);
        }))
      wrong("rank 0 does not say: " + text);
    if (what == Visit::kOtherSecret) {
      if (v.state() != State::kOtherSecret) wrong("a visitor without the secret does not know it");
      return;
    }
    if (v.state() != State::kRefused || !is_in(text, v.refusal()->second) ||
        !v.expects(v.refusal()->first, rank(0).has_trained()))
      wrong("a visitor was told: " + (v.refusal() ? v.refusal()->second : "nothing"));
    if (what == Visit::kOtherVersion && !v.refusal()->second.starts_with("the process at rank 0, "))
      wrong("a visitor believes who has proved nothing: " + v.refusal()->second);
    if (!v.contradicts()) return;
    for (int r = 0; r < world_; ++r) {
      const auto& o = rank(r).outcome();
      const bool finds_rank_0 = starts_[static_cast<std::size_t>(r)] <= root.at;
      const bool is_right = rank(0).has_trained() ? o.end == End::kFinished
                                                  : o.end == End::kNoGroup && is_in(text, o.text);
      if (finds_rank_0 && !is_right)
        wrong(name(r) + " was told of a visitor: " + end_name(o.end) + ": " + o.text);
    }
  }

  struct Standstill {
    int rank;
    Time from;
    milliseconds length;
    int reports;  // that are due
    bool aborts;
  };

  VirtualNetwork network_;
  Dice& dice_;
  Dice more_dice_;  // of what came to be simulated later
  const Time start_;
  std::uint64_t kind_ = 0;
  int world_ = 0, processes_ = 0;
  std::vector<SimulatedRank*> ranks_;
  std::vector<Time> starts_;  // by rank
  Time last_start_, quiet_from_;
  std::set<int> faulty_, killed_;
  std::optional<int> other_settings_;  // the rank that has them
  Contradiction contradiction_ = contradiction(0);
  std::optional<Standstill> standstill_;
  StoreVisitor* visitor_ = nullptr;
  bool is_group_damaged_ = false, is_again_there_ = false, is_rank_0_killed_ = false;
  bool harmless_ = true, slow_ = false;
  milliseconds silence_{0};  // of all that rank 0 may notice
  History history_;
};

}  // namespace

History run_history(std::uint64_t seed) { return Run(seed).check(); }

}  // namespace simulation
