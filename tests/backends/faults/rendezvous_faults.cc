// Faults of the rendezvous: unauthenticated connections, wrong identities, stale files.
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "backends/secret.h"
#include "backends/store/private_files.h"
#include "backends/store/store_session.h"
#include "io/base/time/deadline.h"
#include "tests/backends/faults/fault_list.h"

namespace fault_list {
namespace {

using namespace std::chrono_literals;
using backends::GroupOptions;
using fault_ranks::Event;

// Rank 0 gives up soon, and tells the others.
GroupOptions short_rendezvous(const Rank& rank) {
  GroupOptions o = rank.options(rank.who());
  if (rank.who() == 0) o.rendezvous_timeout_ms = static_cast<int>(rank.scaled(1500ms).count());
  return o;
}

std::function<void(Rank&)> joining(const std::function<void(GroupOptions&, int who)>& change) {
  return [change](Rank& rank) {
    GroupOptions o = short_rendezvous(rank);
    change(o, rank.who());
    rank.join(o);
    rank.work(3);
  };
}

// Sends garbage to the store's port, on twenty connections, and waits until it is rejected.
void send_garbage(int port) {
  std::vector<backends::Socket> clients;
  const std::string noise(3000, '\xff');
  const auto in_a_while = [] { return base::deadline_in(test_support::deadline(20s)); };
  for (int i = 0; i < 20; ++i) {
    std::string reason;
    clients.push_back(backends::connect_to({"127.0.0.1", port}, in_a_while(), reason));
    if (clients.back())
      (void)backends::write_by(clients.back().fd(),
                               noise.substr(0, static_cast<std::size_t>(i) * 150), in_a_while());
  }
  for (std::size_t i = 1; i < clients.size(); ++i) {  // the first sent nothing, and may stay
    if (!clients[i]) continue;
    pollfd closed{clients[i].fd(), POLLIN, 0};
    (void)poll(&closed, 1, test_support::deadline_ms(20'000));
  }
}

}  // namespace

std::vector<Fault> faults_of_rendezvous() {
  return {
      {"garbage at the store's port",
       3,
       work_a_while,
       [](RankProcesses& ranks) { send_garbage(ranks.port()); },
       {{"done"}, {"done"}, {"done"}}},
      {"wrong secret",
       3,
       joining([](GroupOptions& o, int who) {
         if (who == 1) o.job.secret = std::string(64, 'a');
       }),
       {},
       {{"peer: ", "missing 1 of 3 ranks: 1", "secret"},
        {"authentication: "},
        {"peer: ", "missing 1 of 3 ranks: 1"}}},
      {"wrong protocol version",
       3,
       [](Rank& rank) {
         if (rank.who() != 1) return rank.join(short_rendezvous(rank));
         backends::Hello hello;
         hello.version += 1;
         hello.rank = 1;
         hello.world_size = 3;
         const backends::Secret secret = backends::load_secret(group_harness::kSecret, "");
         std::string reason;
         rank.wait_for("the store's answer", [&] {  // which open_session() throws
           (void)backends::open_session({"127.0.0.1", rank.port()}, secret, hello,
                                        base::deadline_in(rank.scaled(2s)),
                                        backends::OtherServers::kNone, reason);
           return false;
         });
       },
       {},
       {{"missing 1 of 3 ranks: 1", "version"},
        {"mismatch: ", "version"},
        {"missing 1 of 3 ranks: 1"}}},
      {"duplicate rank",
       4,
       [](Rank& rank) {
         if (rank.who() == 3) {
           rank.wait_for(Event::kReady, 3);
           try {
             return rank.join(rank.options(1));
           } catch (...) {
             rank.report(Event::kRejected);
             throw;
           }
         }
         rank.join();
         rank.report(Event::kReady);
         rank.wait_for(Event::kRejected, 1);
         rank.work(3);
       },
       {},
       {{"done"}, {"done"}, {"done"}, {"mismatch: ", "rank 1"}}},
      {"wrong world size",
       3,
       joining([](GroupOptions& o, int who) {
         if (who == 1) o.world_size = 4;
       }),
       {},
       all_name("mismatch: ", "rank 1")},
      {"other configuration",
       3,
       joining([](GroupOptions& o, int who) {
         o.job.settings = {{"--seed", who == 1 ? "1" : "0"}};
       }),
       {},
       all_name("mismatch: ", "rank 1")},
      {"port taken",
       3,
       [](Rank& rank) {
         GroupOptions o = rank.options(rank.who());
         o.rendezvous_timeout_ms = static_cast<int>(rank.scaled(3s).count());
         o.listen.fd = -1;  // rank 0 binds the port itself, which this test holds
         rank.join(o);
       },
       {},
       {{"peer: ", "the port is taken"}, {"peer: ", "rank 0"}, {"peer: ", "rank 0"}},
       {},
       true},
      {"stale rendezvous file",
       3,
       [](Rank& rank) {
         GroupOptions o = rank.options(rank.who());
         const std::string path =
             std::filesystem::temp_directory_path() / ("engine-fault-" + std::to_string(getppid()));
         if (rank.who() == 1) {  // left behind by an earlier run that was killed
           GroupOptions earlier = o;
           earlier.init_method = "file://" + path;
           earlier.rank = 0;
           earlier.listen.fd = -1;
           if (const pid_t pid = fork(); pid == 0) {
             prctl(PR_SET_PDEATHSIG, SIGKILL);
             try {
               backends::join_group(earlier);
             } catch (const std::exception&) {
             }
             _exit(0);
           } else {
             rank.wait_for(path, [&] { return std::filesystem::exists(path); });
             kill(pid, SIGKILL);
             waitpid(pid, nullptr, 0);
           }
         }
         rank.barrier();
         o.init_method = "file://" + path;
         o.listen.fd = -1;
         rank.join(o);
         rank.work(10);
         if (rank.who() == 0) std::filesystem::remove(path);
       },
       {},
       {{"done"}, {"done"}, {"done"}}},
  };
}

}  // namespace fault_list
