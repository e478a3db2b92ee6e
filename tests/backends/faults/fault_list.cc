// Faults of processes, connections and collective calls.
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "tests/backends/faults/fault_list.h"

namespace fault_list {
namespace {

using namespace std::chrono_literals;
using backends::GroupOptions;
using backends::ReduceOp;
using base::DType;
using fault_ranks::Event;

const auto kWork = [](Rank& rank) {
  rank.join();
  rank.work();
};
// All ranks reduce, with `timeout`; meanwhile rank 1 runs `action` in another thread. Connections
// that break are restored within `patience`.
std::function<void(Rank&)> working_while(const std::function<void(Rank&)>& action,
                                         std::chrono::milliseconds timeout = 600s,
                                         std::chrono::milliseconds patience = 30s) {
  return [=](Rank& rank) {
    GroupOptions o = rank.options(rank.who());
    o.links.patience_ms = static_cast<int>(patience.count());
    o.timeout_ms = static_cast<int>(rank.scaled(timeout).count());
    rank.join(o);
    std::jthread worker;
    if (rank.who() == 1) {
      worker = std::jthread([&rank, action] {
        rank.wait_for_work();
        action(rank);
      });
    }
    rank.work();
  };
}

// All ranks exchange until rank 1 ends in the middle of a call.
void exchange_until_death(Rank& rank) {
  rank.join();
  rank.communicator().barrier();
  rank.barrier();
  if (rank.who() == 1) _exit(0);
  std::vector<char> mine(300'000), all(mine.size());
  for (;;) rank.communicator().all_to_all(mine.data(), mine.size() / 3, all.data());
}

std::function<void(RankProcesses&)> signaling(int who, int signal) {
  return [=](RankProcesses& ranks) { ranks.send_signal(who, signal); };
}
// Freezes a rank, and thaws it once the others have missed it and ended.
std::function<void(RankProcesses&)> freeze_until_missed(int frozen) {
  return [frozen](RankProcesses& ranks) {
    ranks.send_signal(frozen, SIGSTOP);
    for (int who = 0; who < ranks.size(); ++who)
      if (who != frozen) (void)ranks.outcome(who);
    ranks.send_signal(frozen, SIGCONT);
  };
}
// The others name rank `gone`, with the cause.
Expected all_miss(int gone, const std::string& cause) {
  Expected all(3, {"peer: ", "rank " + std::to_string(gone) + " (host ", cause});
  all[static_cast<std::size_t>(gone)] = kAnything;
  return all;
}
Expected was_silent(int frozen) {
  Expected all = all_miss(frozen, "no heartbeat");
  all[static_cast<std::size_t>(frozen)] = {"peer: ", "this rank was silent for ",
                                           "declared dead by the others"};
  return all;
}

// All ranks make the same first call, then `call`, with `odd` set on rank 1.
template <class Call>
std::function<void(Rank&)> calling(Call call) {
  return [call](Rank& rank) {
    rank.join();
    rank.communicator().barrier();
    rank.barrier();
    call(rank.communicator(), rank.who() == 1);
    for (int i = 0; i < 3; ++i)
      rank.communicator().barrier();  // a rank that did not notice in the call itself notices here
  };
}

// All ranks connect once more, rank 1 with `left` files that it may still open.
std::function<void(Rank&)> connecting_with_files(int left) {
  return [left](Rank& rank) {
    rank.join();
    rank.communicator().barrier();
    if (rank.who() == 1) {
      const int next = dup(0);  // descriptors are given from below
      close(next);
      rlimit limit{};
      getrlimit(RLIMIT_NOFILE, &limit);
      limit.rlim_cur = static_cast<rlim_t>(next) + static_cast<rlim_t>(left);
      setrlimit(RLIMIT_NOFILE, &limit);
    }
    rank.group().make_communicator()->barrier();
  };
}

void each_connection(Rank& rank, const std::function<void(int fd)>& action) {
  for (const int fd : rank.data_connections()) action(fd);
}

}  // namespace

std::vector<Fault> faults_of_processes() {
  const Expected short_of_files = {
      {"peer: ", "rank 1"}, {"peer: ", "open files", "limit", "(ulimit -n)"}, {"peer: ", "rank 1"}};
  return {
      {"killed", 3, kWork, signaling(1, SIGKILL), all_miss(1, "died")},
      {"ended during an exchange", 3, exchange_until_death, {}, all_miss(1, "")},
      {"killed: rank 0", 3, kWork, signaling(0, SIGKILL), all_miss(0, "died")},
      {"frozen", 3, kWork, signaling(1, SIGSTOP), all_miss(1, "no heartbeat")},
      {"frozen: rank 0", 3, kWork, signaling(0, SIGSTOP), all_miss(0, "no heartbeat")},
      {"frozen, then thawed", 3, kWork, freeze_until_missed(1), was_silent(1)},
      {"frozen, then thawed: rank 0", 3, kWork, freeze_until_missed(0), was_silent(0)},
      {"paused for a heartbeat",
       3,
       work_a_while,
       [](RankProcesses& ranks) {
         ranks.send_signal(1, SIGSTOP);
         std::this_thread::sleep_for(ranks.heartbeat());
         ranks.send_signal(1, SIGCONT);
       },
       {{"done"}, {"done"}, {"done"}}},
      {"early exit",
       3,
       [](Rank& rank) {
         rank.join();
         if (rank.who() == 1) rank.group().set_activity("reading data");
         if (rank.who() == 0)
           rank.wait_for("rank 1's activity",
                         [&] { return rank.group().statuses().at(1).activity == "reading data"; });
         rank.barrier();
         if (rank.who() != 1) rank.work();
       },
       {},
       {{"peer: ", "rank 1 (host ", "ended before the others; last activity: reading data"},
        {"done"},
        {"peer: ", "rank 1 (host "}}},
      // Rank 0 gives up, and the others hear from it for whom it has waited.
      {"never calls",
       3,
       [](Rank& rank) {
         GroupOptions o = rank.options(rank.who());
         if (rank.who() == 0) o.timeout_ms = static_cast<int>(rank.scaled(1s).count());
         rank.join(o);
         if (rank.who() != 1) return rank.communicator().barrier();
         rank.wait_for("the end of rank 0", [&] {
           rank.group().check();
           return false;
         });
       },
       {},
       {{"peer: ", "timeout", "rank 1"}, {"peer: ", "rank 0", "timeout"}, {"peer: ", "rank 1"}}},
      {"abort by a thread",
       3,
       working_while([](Rank& rank) { rank.communicator().abort("the user wants it"); }),
       {},
       {{"peer: ", "rank 1"}, {"peer: ", "aborted: the user wants it"}, {"peer: ", "rank 1"}}},
      {"no file can be opened", 3, connecting_with_files(0), {}, short_of_files},
      {"few files can be opened",
       3,
       connecting_with_files(2),
       {},
       short_of_files,
       {"gloo", "zmq", "socket"}},
      {"slow reader",
       3,
       [](Rank& rank) {
         rank.join();
         std::vector<float> data(1'000'000, 1.f);
         for (int i = 0; i < 2; ++i) {
           if (rank.who() == 1) std::this_thread::sleep_for(2 * rank.heartbeat());
           rank.communicator().all_reduce(data.data(), data.size(), DType::kF32, ReduceOp::kMax);
         }
         rank.leave();
       },
       {},
       {{"done"}, {"done"}, {"done"}}},
  };
}

std::vector<Fault> faults_of_connections() {
  const Expected named = all_name("peer: ", "rank 1");
  // A library may hide a broken connection until the deadline, and may name the rank that it
  // happens to wait for.
  const Expected noticed = all_name("peer: ", "rank ");
  const auto hidden = 3s;
  const auto reset = [](Rank& rank) {
    const sockaddr nowhere{AF_UNSPEC, {}};  // connecting a TCP socket to nowhere sends a reset
    each_connection(rank, [&](int fd) { (void)connect(fd, &nowhere, sizeof nowhere); });
  };
  const auto half_close = [](Rank& rank) {
    each_connection(rank, [](int fd) { shutdown(fd, SHUT_WR); });
  };
  return {
      {"connections reset", 3, working_while(reset, 600s, 0s), {}, named, {"socket"}},
      {"connections reset", 3, working_while(reset, hidden, 0s), {}, noticed, {"gloo", "zmq"}},
      {"connections half closed", 3, working_while(half_close, 600s, 0s), {}, named, {"socket"}},
      {"connections half closed",
       3,
       working_while(half_close, hidden, 0s),
       {},
       noticed,
       {"gloo", "zmq"}},
      {"connections reset with patience",
       3,
       [reset](Rank& rank) {
         rank.join();
         std::jthread worker;
         if (rank.who() == 1)
           worker = std::jthread([&rank, reset] {
             rank.wait_for_work();
             reset(rank);
           });
         rank.work(300);
       },
       {},
       {{"done"}, {"done"}, {"done"}},
       {"gloo", "socket", "zmq"}},
      {"garbage on the connections",
       3,
       [](Rank& rank) {
         rank.join();
         rank.communicator().barrier();
         rank.barrier();
         if (rank.who() == 1) {
           const std::string noise(100, '!');
           each_connection(rank,
                           [&](int fd) { send(fd, noise.data(), noise.size(), MSG_NOSIGNAL); });
         }
         rank.communicator().barrier();
         rank.communicator().barrier();
       },
       {},
       Expected(3, {"mismatch: ", "rank 1", "unknown call"}),
       {"socket"}},
      {"a message cut short",
       3,
       [](Rank& rank) {
         rank.join();
         rank.communicator().barrier();
         rank.barrier();
         if (rank.who() == 1) {
           each_connection(rank, [&](int fd) { send(fd, "12345", 5, MSG_NOSIGNAL); });
           _exit(0);
         }
         rank.communicator().barrier();
       },
       {},
       all_miss(1, ""),
       {"socket"}},
  };
}

std::vector<Fault> faults_of_calls() {
  const Expected named = all_name("mismatch: ", "rank 1");
  const auto reduce = [](backends::Communicator& c, std::size_t count, DType type) {
    std::vector<char> data(count * size_of(type));
    c.all_reduce(data.data(), count, type, ReduceOp::kSum);
  };
  return {
      {"operation",
       3,
       calling([=](auto& c, bool odd) { odd ? c.barrier() : reduce(c, 100, DType::kF32); }),
       {},
       named},
      {"exchange",
       3,
       calling([](auto& c, bool odd) {
         std::vector<char> mine(300'000), all(mine.size());
         c.all_to_all(mine.data(), odd ? 7 : mine.size() / 3, all.data());
       }),
       {},
       named},
      {"count",
       3,
       calling([=](auto& c, bool odd) { reduce(c, odd ? 8 : 7, DType::kF32); }),
       {},
       named},
      {"count, large",
       3,
       calling([=](auto& c, bool odd) { reduce(c, odd ? 300'000 : 7, DType::kF32); }),
       {},
       named},
      {"type",
       3,
       calling([=](auto& c, bool odd) { reduce(c, 64, odd ? DType::kI64 : DType::kF64); }),
       {},
       named},
      {"order",
       3,
       calling([=](auto& c, bool odd) {
         reduce(c, odd ? 2000 : 1000, DType::kF32);
         reduce(c, odd ? 1000 : 2000, DType::kF32);
       }),
       {},
       named},
      {"root",
       3,
       calling([](auto& c, bool odd) {
         std::vector<char> data(100'000);
         c.broadcast(data.data(), data.size(), odd ? 1 : 0);
       }),
       {},
       named},
  };
}

}  // namespace fault_list
