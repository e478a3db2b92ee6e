// Faults x backends between processes: nobody hangs, every survivor's error has the right kind and names the culprit.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "backends/rendezvous/secret.h"
#include "backends/rendezvous/store_session.h"
#include "tests/backends/fault_stage.h"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using backends::DataType;
using backends::GroupOptions;
using backends::ReduceOp;
using fault_stage::Actor;
using fault_stage::kHeartbeatMs;
using fault_stage::Stage;

// What each process must have said in the end: parts of its last line; {} for one that is not asked.
using Expected = std::vector<std::vector<std::string>>;
const std::vector<std::string> kAnything = {};

struct Fault {
  const char* name;
  int processes;
  std::function<void(Actor&)> body;
  std::function<void(Stage&)> strike;  // once all are ready; may be empty
  Expected expected;
  std::chrono::milliseconds within = 5s;   // from the blow, or from the start where there is none
  std::vector<std::string> backends = {};  // where it can be done; empty: all
};

const auto kWork = [](Actor& a) {
  a.join();
  a.work();
};
const auto kWorkAWhile = [](Actor& a) {
  a.join();
  a.work(300);
};

// Rank 1 does something to its connections while all work.
std::function<void(Actor&)> working_while(const std::function<void(Actor&)>& deed) {
  return [deed](Actor& a) {
    a.join();
    std::thread doer;
    if (a.who() == 1) {
      doer = std::thread([&a, deed] {
        std::this_thread::sleep_for(300ms);
        deed(a);
      });
    }
    try {
      a.work();
    } catch (...) {
      if (doer.joinable()) doer.join();
      throw;
    }
  };
}

// All make a first call alike, then `call`, which rank 1 does in another way.
std::function<void(Actor&)> calling(const std::function<void(backends::Communicator&, bool odd)>& call) {
  return [call](Actor& a) {
    a.join();
    a.communicator().barrier();
    call(a.communicator(), a.who() == 1);
    for (int i = 0; i < 3; ++i) a.communicator().barrier();  // who did not notice in the call itself, does here
  };
}

std::function<void(Actor&)> joining(const std::function<void(GroupOptions&, int who)>& change) {
  return [change](Actor& a) {
    GroupOptions o = a.options(a.who());
    o.rendezvous_timeout_ms = a.who() == 0 ? 1500 : 4000;  // rank 0 tells the others
    change(o, a.who());
    a.join(o);
    a.work(3);
  };
}

Expected all_name(const std::string& kind, const std::string& culprit) { return {{kind, culprit}, {kind}, {kind, culprit}}; }

std::vector<Fault> faults_of_processes() {
  const Expected named = {{"peer: ", "rank 1 (host "}, kAnything, {"peer: ", "rank 1 (host "}};
  return {
      {"killed", 3, kWork, [](Stage& s) { s.strike(1, SIGKILL); }, named, 2s},
      {"killed: rank 0",
       3,
       kWork,
       [](Stage& s) { s.strike(0, SIGKILL); },
       {kAnything, {"peer: ", "rank 0 (host "}, {"peer: ", "rank 0 (host "}},
       2s},
      {"frozen", 3, kWork, [](Stage& s) { s.strike(1, SIGSTOP); }, named, 3 * kHeartbeatMs * 1ms + 1s},
      {"frozen: rank 0",
       3,
       kWork,
       [](Stage& s) { s.strike(0, SIGSTOP); },
       {kAnything, {"peer: ", "rank 0 (host "}, {"peer: ", "rank 0 (host "}},
       3 * kHeartbeatMs * 1ms + 1s},
      {"paused for a heartbeat",
       3,
       kWorkAWhile,
       [](Stage& s) {
         s.strike(1, SIGSTOP);
         std::this_thread::sleep_for(kHeartbeatMs * 1ms);
         s.strike(1, SIGCONT);
       },
       {{"done"}, {"done"}, {"done"}},
       8s},
      {"early exit",
       3,
       [](Actor& a) {
         a.join();
         if (a.who() == 1) {
           a.group().set_activity("reading data");
           std::this_thread::sleep_for(300ms);
           return;
         }
         a.work();
       },
       {},
       {{"peer: ", "rank 1 (host ", "ended before the others; last activity: reading data"},
        {"done"},
        {"peer: ", "rank 1 (host "}}},
      {"never calls",
       3,
       [](Actor& a) {
         GroupOptions o = a.options(a.who());
         o.timeout_ms = 1000;
         a.join(o);
         if (a.who() == 1) std::this_thread::sleep_for(4s);
         if (a.who() != 1) a.communicator().barrier();
       },
       {},
       {{"peer: ", "timeout", "rank 1"}, kAnything, {"peer: ", "rank 1"}}},
      {"abort by a thread",
       3,
       working_while([](Actor& a) { a.communicator().abort("the user wants it"); }),
       {},
       {{"peer: ", "rank 1"}, {"peer: ", "aborted: the user wants it"}, {"peer: ", "rank 1"}}},
      {"slow reader",
       3,
       [](Actor& a) {
         a.join();
         std::vector<float> data(1'000'000, 1.f);
         for (int i = 0; i < 4; ++i) {
           if (a.who() == 1) std::this_thread::sleep_for(2 * kHeartbeatMs * 1ms);
           a.communicator().all_reduce(data.data(), data.size(), DataType::kF32, ReduceOp::kMax);
         }
         a.leave();
       },
       {},
       {{"done"}, {"done"}, {"done"}},
       8s},
  };
}

void each_connection(Actor& a, const std::function<void(int fd)>& deed) {
  for (const int fd : a.data_connections()) deed(fd);
}

std::vector<Fault> faults_of_connections() {
  const Expected named = all_name("peer: ", "rank 1");
  return {
      {"connections reset",
       3,
       working_while([](Actor& a) {
         // Connecting a TCP socket to nowhere sends a reset.
         const sockaddr nowhere{AF_UNSPEC, {}};
         each_connection(a, [&](int fd) { connect(fd, &nowhere, sizeof nowhere); });
       }),
       {},
       named,
       5s,
       {"gloo", "socket", "zmq"}},
      {"connections half closed",
       3,
       working_while([](Actor& a) { each_connection(a, [](int fd) { shutdown(fd, SHUT_WR); }); }),
       {},
       named,
       5s,
       {"gloo", "socket", "zmq"}},
      {"garbage on the connections",
       3,
       [](Actor& a) {
         a.join();
         a.communicator().barrier();
         if (a.who() == 1) {
           const std::string noise(100, '!');
           each_connection(a, [&](int fd) { send(fd, noise.data(), noise.size(), MSG_NOSIGNAL); });
           std::this_thread::sleep_for(500ms);
         }
         a.communicator().barrier();
         a.communicator().barrier();
       },
       {},
       {{"mismatch: ", "rank 1", "something unknown"}, {"peer: "}, {"mismatch: ", "rank 1", "something unknown"}},
       5s,
       {"socket"}},
      {"a message cut short",
       3,
       [](Actor& a) {
         a.join();
         a.communicator().barrier();
         if (a.who() == 1) {
           each_connection(a, [&](int fd) { send(fd, "12345", 5, MSG_NOSIGNAL); });
           _exit(0);
         }
         a.communicator().barrier();
       },
       {},
       {{"peer: ", "rank 1 (host "}, kAnything, {"peer: ", "rank 1 (host "}},
       5s,
       {"socket"}},
  };
}

std::vector<Fault> faults_of_calls() {
  const Expected named = all_name("mismatch: ", "rank 1");
  const auto reduce = [](backends::Communicator& c, std::size_t count, DataType type) {
    std::vector<char> data(count * size_of(type));
    c.all_reduce(data.data(), count, type, ReduceOp::kSum);
  };
  return {
      {"operation", 3, calling([=](auto& c, bool odd) { odd ? c.barrier() : reduce(c, 100, DataType::kF32); }), {}, named},
      {"count", 3, calling([=](auto& c, bool odd) { reduce(c, odd ? 8 : 7, DataType::kF32); }), {}, named},
      {"count, large", 3, calling([=](auto& c, bool odd) { reduce(c, odd ? 300'000 : 7, DataType::kF32); }), {}, named},
      {"type", 3, calling([=](auto& c, bool odd) { reduce(c, 64, odd ? DataType::kI64 : DataType::kF64); }), {}, named},
      {"order",
       3,
       calling([=](auto& c, bool odd) {
         reduce(c, odd ? 2000 : 1000, DataType::kF32);
         reduce(c, odd ? 1000 : 2000, DataType::kF32);
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

// A stranger who sends what it likes to the store's port, on twenty connections.
void bother(int port) {
  std::vector<backends::Socket> strangers;
  const std::string noise(3000, '\xff');
  for (int i = 0; i < 20; ++i) {
    std::string reason;
    strangers.push_back(backends::connect_to({"127.0.0.1", port}, Clock::now() + 1s, reason));
    if (strangers.back())
      (void)backends::write_by(strangers.back().fd(), noise.substr(0, static_cast<std::size_t>(i) * 150), Clock::now() + 1s);
  }
  std::this_thread::sleep_for(300ms);
}

std::vector<Fault> faults_of_meeting() {
  return {
      {"garbage at the store's port", 3, kWorkAWhile, [](Stage& s) { bother(s.port()); }, {{"done"}, {"done"}, {"done"}}, 8s},
      {"wrong secret",
       3,
       joining([](GroupOptions& o, int who) {
         if (who == 1) o.secret = std::string(64, 'a');
       }),
       {},
       {{"peer: ", "missing 1 of 3 ranks: 1", "secret"}, {"authentication: "}, {"peer: ", "missing 1 of 3 ranks: 1"}}},
      {"wrong protocol version",
       3,
       [](Actor& a) {
         GroupOptions o = a.options(a.who());
         o.rendezvous_timeout_ms = a.who() == 0 ? 1500 : 4000;
         if (a.who() != 1) return a.join(o);
         backends::Hello hello;
         hello.version += 1;
         hello.rank = 1;
         hello.world_size = 3;
         const backends::Secret secret = backends::load_secret(group_harness::kSecret, "");
         std::string reason;
         for (int i = 0; i < 50; ++i) {
           (void)backends::open_session({"127.0.0.1", a.port()}, secret, hello, Clock::now() + 2s, backends::Doubt::kNone,
                                        reason);
           std::this_thread::sleep_for(50ms);
         }
         throw std::runtime_error(reason);
       },
       {},
       {{"missing 1 of 3 ranks: 1", "version"}, {"mismatch: ", "version"}, {"missing 1 of 3 ranks: 1"}}},
      {"duplicate rank",
       4,
       [](Actor& a) {
         GroupOptions o = a.options(a.who() == 3 ? 1 : a.who());
         if (a.who() == 3) std::this_thread::sleep_for(500ms);
         a.join(o);
         for (int i = 0; i < 30; ++i) {
           std::this_thread::sleep_for(50ms);
           a.communicator().barrier();
         }
         a.leave();
       },
       {},
       {{"done"}, {"done"}, {"done"}, {"mismatch: ", "rank 1"}},
       8s},
      {"wrong world size",
       3,
       joining([](GroupOptions& o, int who) {
         if (who == 1) o.world_size = 4;
       }),
       {},
       all_name("mismatch: ", "rank 1")},
      {"other configuration",
       3,
       joining([](GroupOptions& o, int who) { o.config_digest = who == 1 ? "b" : "a"; }),
       {},
       all_name("mismatch: ", "rank 1")},
      {"port taken",
       3,
       [](Actor& a) {
         GroupOptions o = a.options(a.who());
         o.rendezvous_timeout_ms = 3000;
         o.listen_fd = -1;  // rank 0 tries for itself, while its process holds the port by the other descriptor
         a.join(o);
       },
       {},
       {{"peer: ", "the port is taken"}, {"peer: ", "rank 0"}, {"peer: ", "rank 0"}},
       8s},
      {"stale rendezvous file",
       3,
       [](Actor& a) {
         GroupOptions o = a.options(a.who());
         const std::string path = std::filesystem::temp_directory_path() / ("engine-fault-" + std::to_string(getppid()));
         if (a.who() == 1) {  // a run before left it, killed
           GroupOptions before = o;
           before.init_method = "file://" + path;
           before.rank = 0;
           before.listen_fd = -1;
           if (const pid_t pid = fork(); pid == 0) {
             alarm(5);
             try {
               backends::join_group(before);
             } catch (const std::exception&) {
             }
             _exit(0);
           } else {
             while (!std::filesystem::exists(path)) std::this_thread::sleep_for(10ms);
             kill(pid, SIGKILL);
             waitpid(pid, nullptr, 0);
           }
         } else {
           while (!std::filesystem::exists(path)) std::this_thread::sleep_for(10ms);
           std::this_thread::sleep_for(100ms);
         }
         o.init_method = "file://" + path;
         o.listen_fd = -1;
         a.join(o);
         a.work(10);
         if (a.who() == 0) std::filesystem::remove(path);
       },
       {},
       {{"done"}, {"done"}, {"done"}},
       8s},
  };
}

std::vector<Fault> all_faults() {
  std::vector<Fault> all;
  for (auto&& some : {faults_of_processes(), faults_of_connections(), faults_of_calls(), faults_of_meeting()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

std::vector<std::string> process_backends() {
  std::vector<std::string> names;
  for (const backends::BackendInfo& b : backends::list_backends()) {
    if (b.usable && b.name != "inproc") names.push_back(b.name);
  }
  return names;
}

// [fault][backend]: seconds, "FAILED" or "-".
std::map<std::string, std::map<std::string, std::string>> matrix;

class MatrixPrinter : public ::testing::Environment {
 public:
  void TearDown() override {
    const std::vector<std::string> backends = process_backends();
    std::printf("%-28s", "fault");
    for (const std::string& b : backends) std::printf(" %9s", b.c_str());
    for (const Fault& fault : all_faults()) {
      if (matrix.count(fault.name) == 0) continue;
      std::printf("\n%-28s", fault.name);
      for (const std::string& b : backends) std::printf(" %9s", matrix[fault.name][b].c_str());
    }
    std::printf("\n");
  }
};
[[maybe_unused]] ::testing::Environment* const printer = ::testing::AddGlobalTestEnvironment(new MatrixPrinter);

struct Cell {
  Fault fault;
  std::string backend;
};
void PrintTo(const Cell& c, std::ostream* out) { *out << c.fault.name << " x " << c.backend; }

std::vector<Cell> cells() {
  std::vector<Cell> all;
  for (const Fault& fault : all_faults()) {
    for (const std::string& backend : process_backends()) {
      const bool fits = fault.backends.empty() || std::ranges::find(fault.backends, backend) != fault.backends.end();
      if (fits) all.push_back({fault, backend});
    }
  }
  return all;
}

class FaultMatrix : public ::testing::TestWithParam<Cell> {};

TEST_P(FaultMatrix, IsNoticedAndNamed) {
  const auto& [fault, backend] = GetParam();
  for (const std::string& b : process_backends()) matrix[fault.name].try_emplace(b, "-");
  auto start = Clock::now();
  Stage stage(backend, 3, fault.processes, fault.body);
  if (fault.strike) {
    ASSERT_TRUE(stage.all_ready());
    std::this_thread::sleep_for(300ms);
    start = Clock::now();
    fault.strike(stage);
  }
  for (int who = 0; who < stage.size(); ++who) {
    if (fault.expected[static_cast<std::size_t>(who)].empty()) continue;
    const std::string outcome = stage.outcome(who, start + fault.within);
    for (const std::string& part : fault.expected[static_cast<std::size_t>(who)])
      EXPECT_NE(outcome.find(part), std::string::npos) << "process " << who << " lacks \"" << part << "\": " << outcome;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(Clock::now() - start).count());
  matrix[fault.name][backend] = HasFailure() ? "FAILED" : text;
}

INSTANTIATE_TEST_SUITE_P(Faults, FaultMatrix, ::testing::ValuesIn(cells()), [](const auto& cell) {
  std::string name = std::string(cell.param.fault.name) + "_" + cell.param.backend;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
});

}  // namespace
