// Faults of the rendezvous: unauthenticated connections, wrong identities, stale files.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "backends/secret.h"
#include "backends/store/private_files.h"
#include "backends/store/store_session.h"
#include "io/base/time/deadline.h"
#include "tests/backends/faults/fault_list.h"

namespace fault_list {
namespace {

using namespace std::chrono_literals;
using backends::GroupOptions;

std::function<void(Rank&)> joining(const std::function<void(GroupOptions&, int who)>& change) {
  return [change](Rank& rank) {
    GroupOptions o = rank.options(rank.who());
    o.rendezvous_timeout_ms =
        test_support::deadline_ms(rank.who() == 0 ? 1500 : 4000);  // rank 0 tells the others
    change(o, rank.who());
    rank.join(o);
    rank.work(3);
  };
}

// Sends garbage to the store's port, on twenty connections.
void send_garbage(int port) {
  std::vector<backends::Socket> clients;
  const std::string noise(3000, '\xff');
  for (int i = 0; i < 20; ++i) {
    std::string reason;
    clients.push_back(backends::connect_to({"127.0.0.1", port},
                                           base::deadline_in(test_support::deadline(1s)), reason));
    if (clients.back())
      (void)backends::write_by(clients.back().fd(),
                               noise.substr(0, static_cast<std::size_t>(i) * 150),
                               base::deadline_in(test_support::deadline(1s)));
  }
  test_support::pause(300ms);
}

}  // namespace

std::vector<Fault> faults_of_rendezvous() {
  return {
      {"garbage at the store's port",
       3,
       work_a_while,
       [](RankProcesses& ranks) { send_garbage(ranks.port()); },
       {{"done"}, {"done"}, {"done"}},
       8s},
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
         GroupOptions o = rank.options(rank.who());
         o.rendezvous_timeout_ms = test_support::deadline_ms(rank.who() == 0 ? 1500 : 4000);
         if (rank.who() != 1) return rank.join(o);
         backends::Hello hello;
         hello.version += 1;
         hello.rank = 1;
         hello.world_size = 3;
         const backends::Secret secret = backends::load_secret(group_harness::kSecret, "");
         std::string reason;
         for (int i = 0; i < 50; ++i) {
           (void)backends::open_session({"127.0.0.1", rank.port()}, secret, hello,
                                        base::deadline_in(test_support::deadline(2s)),
                                        backends::OtherServers::kNone, reason);
           std::this_thread::sleep_for(50ms);
         }
         throw std::runtime_error(reason);
       },
       {},
       {{"missing 1 of 3 ranks: 1", "version"},
        {"mismatch: ", "version"},
        {"missing 1 of 3 ranks: 1"}}},
      {"duplicate rank",
       4,
       [](Rank& rank) {
         GroupOptions o = rank.options(rank.who() == 3 ? 1 : rank.who());
         if (rank.who() == 3) test_support::pause(500ms);
         rank.join(o);
         for (int i = 0; i < 30; ++i) {
           test_support::pause(50ms);
           rank.communicator().barrier();
         }
         rank.leave();
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
       joining([](GroupOptions& o, int who) {
         o.job.settings = {{"--seed", who == 1 ? "1" : "0"}};
       }),
       {},
       all_name("mismatch: ", "rank 1")},
      {"port taken",
       3,
       [](Rank& rank) {
         GroupOptions o = rank.options(rank.who());
         o.rendezvous_timeout_ms = test_support::deadline_ms(3000);
         o.listen.fd = -1;  // rank 0 binds the port itself, which this test holds
         rank.join(o);
       },
       {},
       {{"peer: ", "the port is taken"}, {"peer: ", "rank 0"}, {"peer: ", "rank 0"}},
       8s,
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
             alarm(static_cast<unsigned>(test_support::deadline_ms(5000) / 1000));
             try {
               backends::join_group(earlier);
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
           test_support::pause(100ms);
         }
         o.init_method = "file://" + path;
         o.listen.fd = -1;
         rank.join(o);
         rank.work(10);
         if (rank.who() == 0) std::filesystem::remove(path);
       },
       {},
       {{"done"}, {"done"}, {"done"}},
       8s},
  };
}

}  // namespace fault_list
