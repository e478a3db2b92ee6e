// Makes schedules of failures for an elastic job, and checks what its processes have agreed on.
#include "tests/simulation/elastic_history.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "tests/simulation/elastic_process.h"
#include "tests/simulation/elastic_world.h"
#include "tests/simulation/virtual_network.h"

namespace simulation {
namespace {

using ElasticEnd = ElasticProcess::End;

constexpr auto kSpan = milliseconds(10'000);           // in which faults begin
constexpr auto kLongCalm = milliseconds(45'000);       // more than the time in which ranks give up
constexpr auto kRecoveryTime = milliseconds(13'000);   // from the last fault's end to the last step
constexpr auto kTimeToGiveUp = milliseconds(100'000);  // from there to everybody's end

// Silence is noticed after three heartbeats of one second; a step takes up to 1.3 s, and so does
// each change: one without the lost member, one with whoever comes back or waits.
constexpr auto kLongestStall = milliseconds(8'000);

// Of deaths at points.
constexpr auto kTimeToFound = milliseconds(6'000), kTimeToDie = milliseconds(10'000);
constexpr auto kTimeToComeBack = milliseconds(1'000);

constexpr std::int64_t kSingleFaults[] = {1, 2, 5, 8};  // as add_fault() numbers them

std::string time_text(Time::duration d) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f s", std::chrono::duration<double>(d).count());
  return text;
}

std::string process_name(int process) { return "process " + std::to_string(process); }

class ElasticRun {
 public:
  ElasticRun(std::uint64_t seed, const std::optional<Death>& death)
      : network_(seed), dice_(network_.dice()), world_(network_), start_(network_.now()) {
    quiet_from_ = start_;
    if (seed % 4 == 3) network_.come_in_pieces();
    // By the seed's number, so that the other histories stay what they are. In a race all members
    // of several hosts propose at once, over links so slow that their messages overtake each other.
    const bool is_race = seed % 6 == 0;
    if (seed % 25 == 1) first_fault_ = kLongCalm;
    // One fault that lasts, on one host: the others may not even pause for long.
    is_single_ = seed % 10 == 3;
    const auto hosts = is_single_         ? 1
                       : is_race          ? dice_.between(3, 5)
                       : dice_.chance(35) ? 1
                                          : dice_.between(2, 4);
    for (int h = 0; h < hosts; ++h) {
      world_.hosts.emplace_back();
      world_.hosts.back().acceptor = {7, static_cast<std::uint64_t>(h) + 1};
    }
    const int processes = static_cast<int>(is_race ? dice_.between(hosts, 7) : dice_.between(1, 5));
    world_.min_ranks =
        dice_.chance(25) ? static_cast<int>(dice_.between(1, std::max(1, processes - 1))) : 1;
    world_.max_ranks = dice_.chance(15) && !is_race
                           ? static_cast<int>(dice_.between(world_.min_ranks, processes))
                           : 12;
    world_.is_shared_endpoint = dice_.chance(20);
    // Safety does not depend on who proposes when.
    if (is_race || dice_.chance(40)) world_.patience = 0;
    history_.schedule = std::to_string(hosts) + " hosts, " + std::to_string(world_.min_ranks) +
                        ":" + std::to_string(world_.max_ranks) +
                        (world_.is_shared_endpoint ? ", shared endpoint" : "") +
                        (world_.patience == 0 ? ", all propose at once" : "");
    for (int p = 0; p < processes; ++p) {
      const int host = p < hosts && is_race ? p : p == 0 ? 0 : some_host();
      add({.host = host,
           .hint = p,
           .starts_after =
               milliseconds(dice_.chance(85) ? dice_.between(0, 500) : dice_.between(0, 6'000))});
    }
    if (is_race || (!is_single_ && dice_.chance(15))) {
      network_.slow_down(milliseconds(dice_.between(is_race ? 300 : 10, 800)));
      harmless_ = only_leaves_ = false;
      note(start_, "slow network");
    }
    if (death) {
      add_death_at(*death);
    } else {
      add_faults(is_race);
    }
    network_.at(quiet_from_, [this] { quiet(); });
    if (harmless_) history_.schedule += "; harmless";
    world_.last_step_from = quiet_from_ + (is_race ? 3 : 1) * kRecoveryTime;
  }

  History check() {
    network_.run(world_.last_step_from + kTimeToGiveUp);
    history_.seconds = std::chrono::duration<double>(network_.now() - start_).count();
    history_.wrong = world_.wrong;
    bool anyone_finished = false;
    for (const ElasticProcess* p : world_.processes)
      anyone_finished = anyone_finished || p->end() == ElasticEnd::kFinished;
    const Steps* steps = nullptr;
    for (const ElasticProcess* p : world_.processes) {
      check(*p, anyone_finished);
      if (p->end() != ElasticEnd::kFinished) continue;
      // Where there is no room for all, who is left over may found another job.
      const bool other_job =
          steps != nullptr && !has_room_for_all() && steps->epoch != p->steps().epoch;
      if (steps != nullptr && !other_job && *steps != p->steps())
        wrong("finished with different steps");
      steps = &p->steps();
    }
    if (is_single_) others_go_on();
    if (harmless_ && world_.expulsions > 0)
      wrong("a member was left out to which nothing happened");
    if (harmless_ && world_.needless_changes > 0) wrong("a generation ended for nothing");
    if (world_.lost_states > 0) ++history_.ends["state lost"];
    return history_;
  }

 private:
  void note(Time at, const std::string& what) {
    history_.schedule += "; " + time_text(at - start_) + ": " + what;
  }
  void wrong(const std::string& what) { history_.wrong.push_back(what); }

  bool has_room_for_all() const {
    return world_.max_ranks >= static_cast<int>(world_.processes.size());
  }

  // A joining rank finds a job only through the endpoint, on whose host a process must be alive.
  bool endpoint_was_lost() const {
    return std::ranges::none_of(world_.processes, [](const ElasticProcess* p) {
      return p->options().host == 0 && p->end() == ElasticEnd::kFinished;
    });
  }

  void check(const ElasticProcess& p, bool anyone_finished) {
    const std::string who = process_name(p.number());
    switch (p.end()) {
      case ElasticEnd::kFinished:
        ++history_.ends["finished"];
        return;
      case ElasticEnd::kWithdrew:
        ++history_.ends["left"];
        if (p.is_alive()) wrong(who + " has left and never ends");
        return;
      case ElasticEnd::kRunning:
        if (!p.is_alive()) {
          ++history_.ends["died"];
        } else if (p.has_started()) {
          wrong(who + " never ends");
        }
        return;
      case ElasticEnd::kFailed:
        ++history_.ends["gave up"];
        if (!has_room_for_all()) return;  // some wait until the job has ended
        if (anyone_finished && (p.has_been_member() || !endpoint_was_lost())) {
          wrong(who + " was not taken in again: " + p.why());
        } else if (p.progress_was_possible()) {
          wrong(who + " gave up, although the job could go on: " + p.why());
        } else if (only_leaves_ && history_.faults > 0 && p.has_been_member()) {
          wrong(who + " gave up, because another one left: " + p.why());
        }
    }
  }

  // Of two that have lost each other one is left out.
  void others_go_on() {
    if (static_cast<int>(world_.processes.size()) - 1 < world_.min_ranks) return;
    int stalled = 0;
    for (const ElasticProcess* p : world_.processes) {
      if (p->longest_step() <= kLongestStall) continue;
      const bool is_victim = p->number() == victim_ || p->number() == other_victim_;
      if (!is_victim || ++stalled == 2)
        wrong(process_name(p->number()) + " took no step for " + time_text(p->longest_step()) +
              ", although nothing stood in its way");
    }
  }

  void add(ElasticOptions options) {
    options.step_time = milliseconds(dice_.between(700, 1300));
    const int number = static_cast<int>(world_.processes.size());
    auto process = std::make_unique<ElasticProcess>(world_, number, options);
    world_.processes.push_back(process.get());
    quiet_from_ = std::max(quiet_from_, network_.now() + options.starts_after);
    note(network_.now() + options.starts_after, process_name(number) + " starts on host " +
                                                    std::to_string(options.host) +
                                                    (options.restarted ? " again" : ""));
    network_.add(std::move(process));
  }

  int some_host() {
    return static_cast<int>(dice_.between(0, static_cast<std::int64_t>(world_.hosts.size()) - 1));
  }
  int some_process() {
    return static_cast<int>(
        dice_.between(0, static_cast<std::int64_t>(world_.processes.size()) - 1));
  }
  ElasticProcess& process(int number) {
    return *world_.processes[static_cast<std::size_t>(number)];
  }

  // Around what matters: less than a heartbeat, about three, many.
  milliseconds some_length() {
    if (is_single_) return milliseconds(dice_.between(12'000, 20'000));
    switch (dice_.between(0, 2)) {
      case 0:
        return milliseconds(dice_.between(1, 2'000));
      case 1:
        return milliseconds(dice_.between(2'000, 4'500));
      default:
        return milliseconds(dice_.between(3'000, 9'000));
    }
  }

  void add_faults(bool is_race) {
    for (std::int64_t count = is_single_ ? 1
                              : is_race  ? dice_.between(3, 8)
                                         : dice_.between(0, 5);
         count > 0; --count)
      add_fault();
  }

  // Either while the job is founded and takes its first steps, or while the others agree without
  // the process that is killed.
  void add_death_at(const Death& death) {
    harmless_ = only_leaves_ = is_single_ = false;
    if (const int last = static_cast<int>(world_.processes.size()) - 1; last >= 2) {
      note(start_ + kTimeToFound, process_name(last) + " is killed");
      network_.at(start_ + kTimeToFound, [this, last] { kill(last); });
    }
    quiet_from_ = std::max(quiet_from_, start_ + kTimeToDie);
    world_.dies_at = death.point;
    if (death.point == 0) return;
    history_.schedule += "; who passes point " + std::to_string(death.point) + " dies" +
                         (death.comes_back ? ", and comes back" : "");
    world_.died = [this, death](int p) {
      if (!death.comes_back) return;
      network_.at(network_.now() + kTimeToComeBack,
                  [this, p] { newcomer({.host = process(p).options().host, .restarted = true}); });
    };
  }

  void add_fault() {
    ++history_.faults;
    const Time at = start_ + first_fault_ + milliseconds(dice_.between(0, kSpan.count()));
    const milliseconds length = some_length();
    quiet_from_ = std::max(quiet_from_, at);
    const auto kind = is_single_ ? kSingleFaults[dice_.between(0, 3)] : dice_.between(0, 14);
    only_leaves_ = only_leaves_ && kind == 8;
    // Nothing happens to a job of one host whose clock stands still, and to none where a clock
    // jumps or words come twice.
    harmless_ = harmless_ && ((kind == 0 && world_.hosts.size() == 1) || kind == 11 || kind == 12);
    switch (kind) {
      case 0:
        return add_pause_of_host(at, length);
      case 1:
        return add_pause(at, length);
      case 2:
      case 3:
        return add_death(at);
      case 4:
        return add_death_of_host(at);
      case 5:
      case 6:
        return add_cut(at, length);
      case 7:
        return add_loss(at);
      case 8:
        return add_leave(at);
      case 9: {
        const int host = some_host();
        network_.at(at, [this, host] { newcomer({.host = host}); });
        return;
      }
      case 10:
        return add_death_in_acceptor(at);
      case 11:
        return add_jump(at, length);
      case 12:
        return add_repetition(at, length);
      case 13:
        return add_full_disk(at, length);
      default:
        return add_death_at_point(at);
    }
  }

  void newcomer(ElasticOptions options) {
    if (world_.hosts[static_cast<std::size_t>(options.host)].gone) return;
    add(options);
  }

  void add_pause(Time at, milliseconds length) {
    const int p = some_process();
    const bool in_acceptor = dice_.chance(20) && !is_single_;
    victim_ = other_victim_ = p;
    note(at, process_name(p) + " is paused for " + time_text(length) +
                 (in_acceptor ? " while it has the acceptor" : ""));
    quiet_from_ = std::max(quiet_from_, at + length);
    network_.at(at, [this, p, in_acceptor] {
      network_.pause(p);
      auto& host = world_.hosts[static_cast<std::size_t>(process(p).options().host)];
      if (in_acceptor && host.held_by < 0 && process(p).has_started()) host.held_by = p;
    });
    network_.at(at + length, [this, p] {
      auto& host = world_.hosts[static_cast<std::size_t>(process(p).options().host)];
      if (host.held_by == p) host.held_by = -1;
      network_.thaw(p);
    });
  }

  void add_pause_of_host(Time at, milliseconds length) {
    const int host = some_host();
    note(at, "host " + std::to_string(host) + " stands still for " + time_text(length));
    quiet_from_ = std::max(quiet_from_, at + length);
    const auto each = [this, host](auto call) {
      for (const ElasticProcess* p : world_.processes) {
        if (p->options().host == host) call(p->number());
      }
    };
    network_.at(at, [=, this] { each([this](int p) { network_.pause(p); }); });
    network_.at(at + length, [=, this] { each([this](int p) { network_.thaw(p); }); });
  }

  void kill(int p) {
    if (!process(p).is_alive()) return;
    network_.exit(p);
  }

  void add_death(Time at) {
    const int p = some_process();
    victim_ = other_victim_ = p;
    note(at, process_name(p) + " is killed");
    network_.at(at, [this, p] { kill(p); });
    add_respawn(at, p);
  }

  void add_respawn(Time at, int p) {
    if (!dice_.chance(50)) return;
    const Time again = at + milliseconds(dice_.between(1, 6'000));
    quiet_from_ = std::max(quiet_from_, again);
    network_.at(again, [this, p] {
      newcomer({.host = process(p).options().host, .restarted = dice_.chance(80)});
    });
  }

  void add_death_at_point(Time at) {
    const int p = some_process();
    const auto points = static_cast<int>(dice_.between(1, 60));
    note(at,
         process_name(p) + " dies behind the " + std::to_string(points) + "th thing that it does");
    network_.at(at, [this, p, points] { process(p).die_behind(points); });
    add_respawn(at, p);
  }

  void add_death_in_acceptor(Time at) {
    const int host = some_host();
    const auto updates = static_cast<int>(dice_.between(0, 12));
    const bool is_torn = dice_.chance(50);
    note(at, "a process of host " + std::to_string(host) + " dies " + (is_torn ? "in" : "behind") +
                 " its " + std::to_string(updates + 1) + "th use of the acceptor");
    network_.at(at, [this, host, updates, is_torn] {
      auto& on = world_.hosts[static_cast<std::size_t>(host)];
      on.dies_in = updates;
      on.is_torn = is_torn;
    });
  }

  void add_full_disk(Time at, milliseconds length) {
    const int host = some_host();
    note(at, "the acceptor of host " + std::to_string(host) + " cannot be written for " +
                 time_text(length));
    quiet_from_ = std::max(quiet_from_, at + length);
    const auto set = [this, host](bool is_full) {
      world_.hosts[static_cast<std::size_t>(host)].is_full = is_full;
    };
    network_.at(at, [set] { set(true); });
    network_.at(at + length, [set] { set(false); });
  }

  void add_jump(Time at, milliseconds length) {
    const int p = some_process();
    note(at, "the clock of " + process_name(p) + " jumps by " + time_text(length));
    network_.at(at, [this, p, length] {
      process(p).let_clock_jump(length);
      if (dice_.chance(50)) network_.wake(p);
    });
  }

  void add_repetition(Time at, milliseconds length) {
    const auto percent = static_cast<int>(dice_.between(5, 60));
    const milliseconds longest(dice_.chance(50) ? dice_.between(1, 50) : dice_.between(50, 6'000));
    note(at, std::to_string(percent) + " % of the messages come again within " +
                 time_text(longest) + " for " + time_text(length));
    quiet_from_ = std::max(quiet_from_, at + length + longest);
    network_.at(at, [=, this] { network_.repeat(Port::kAgent, percent, longest); });
    network_.at(at + length, [this] { network_.repeat(Port::kAgent, 0, {}); });
  }

  void add_leave(Time at) {
    const int p = some_process();
    victim_ = other_victim_ = p;
    note(at, process_name(p) + " is asked to leave");
    network_.at(at, [this, p] { process(p).ask_to_leave(); });
  }

  void add_death_of_host(Time at) {
    const int host = some_host();
    note(at, "host " + std::to_string(host) + " dies");
    network_.at(at, [this, host] {
      world_.hosts[static_cast<std::size_t>(host)].gone = true;
      for (const ElasticProcess* p : world_.processes) {
        if (p->options().host == host) kill(p->number());
      }
    });
  }

  // Between two hosts, or two processes; in one direction or both.
  void add_cut(Time at, milliseconds length) {
    const int a = some_process(), b = some_process();
    const bool one_way = dice_.chance(30), of_hosts = dice_.chance(70) && !is_single_;
    victim_ = a;
    other_victim_ = b;
    note(at, process_name(a) + " and " + process_name(b) +
                 (of_hosts ? " and the rest of their hosts" : "") + " are cut off for " +
                 time_text(length) + (one_way ? ", one way" : ""));
    quiet_from_ = std::max(quiet_from_, at + length);
    network_.at(at, [=, this] {
      each_pair(a, b, of_hosts, [&](int from, int to) {
        network_.cut_one_way(from, to);
        if (!one_way) network_.cut_one_way(to, from);
      });
    });
    network_.at(at + length, [=, this] {
      const bool loses = dice_.chance(50);
      each_pair(a, b, of_hosts, [&](int from, int to) {
        if (loses) network_.lose(from, to);
        network_.heal(from, to);
      });
    });
  }

  template <class Call>
  void each_pair(int a, int b, bool of_hosts, const Call& call) {
    if (!of_hosts) {
      if (a != b) call(a, b);
      return;
    }
    for (const ElasticProcess* from : world_.processes) {
      for (const ElasticProcess* to : world_.processes) {
        if (from->options().host == process(a).options().host &&
            to->options().host == process(b).options().host &&
            from->options().host != to->options().host)
          call(from->number(), to->number());
      }
    }
  }

  void add_loss(Time at) {
    const int a = some_process(), b = some_process();
    if (a == b) return;
    note(at, "the connections of " + process_name(a) + " and " + process_name(b) +
                 " break, with what was under way");
    if (dice_.chance(70)) {
      network_.at(at, [this, a, b] { network_.lose(a, b); });
    } else {  // what was under way comes behind what is sent by the next connection
      history_.schedule += ", which is late";
      const milliseconds noticed(dice_.between(0, 500));
      network_.at(at, [=, this] { network_.reset(a, b, noticed); });
    }
    if (dice_.chance(50)) network_.slow_down(a, b, milliseconds(dice_.between(5, 900)));
  }

  void quiet() {
    history_.points = world_.points;
    for (auto& host : world_.hosts) host.dies_in = -1;
    for (ElasticProcess* p : world_.processes) p->die_behind(0);
  }

  VirtualNetwork network_;
  Dice& dice_;
  ElasticWorld world_;
  const Time start_;
  Time quiet_from_{};
  milliseconds first_fault_{0};  // not before this time
  bool is_single_ = false;
  int victim_ = -1, other_victim_ = -1;  // of the fault made last
  bool harmless_ = true;
  bool only_leaves_ = true;  // whatever else happens, nobody fails
  History history_;
};

}  // namespace

History run_elastic_history(std::uint64_t seed) { return ElasticRun(seed, std::nullopt).check(); }

History run_with_death(std::uint64_t seed, const Death& death) {
  return ElasticRun(seed, death).check();
}

}  // namespace simulation
