// The rendezvous under stress: unauthenticated connections, many starts, many jobs, many ranks; and
// the addresses that ranks listen on.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/free_port.h"
#include "tests/support/running_program.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"

namespace {

using Clock = std::chrono::steady_clock;
using test_support::argv;
using test_support::call;
using test_support::free_port;
using test_support::Running;
using test_support::TemporaryDirectory;

std::vector<std::string> tiny_train(const std::vector<std::string>& more) {
  return test_support::overridden(
      argv(test_support::engine_binary(),
           "train --model mlp --dataset synthetic --synthetic-shape 4x4x1 --synthetic-size 64 "
           "--batch-size 64 --eval-every 0 --threads 1"),
      more);
}

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

long resident_kib(int pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmRSS:", 0) == 0) return std::stol(line.substr(6));
  return -1;
}

bool trains(const Running& program) { return program.writes_out("Step ["); }

// Connects, sends garbage, and closes with a reset, so that no port stays in TIME_WAIT.
bool connect_and_reset(int port, std::mt19937& random) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const linger now{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  const sockaddr_in address = loopback(port);
  const bool connected =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  char garbage[64];
  for (char& c : garbage) c = static_cast<char>(random());
  if (connected) static_cast<void>(send(fd, garbage, random() % sizeof garbage, MSG_NOSIGNAL));
  close(fd);
  return connected;
}

// Sends garbage and waits until the server closes the connection; by then it has served all earlier
// ones. Without such pauses the listen queue (128) overflows on a busy machine, and a client that
// finds it full retries only after a second.
bool is_closed_by_server(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(port);
  const std::string garbage(64, '\xff');
  char answer = 0;
  bool closed = false;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL) > 0) {
    closed = test_support::eventually([&] {
      const ssize_t n = recv(fd, &answer, 1, MSG_DONTWAIT);
      return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    });
  }
  close(fd);
  return closed;
}

// The number of open descriptors of a process.
std::ptrdiff_t descriptors(int pid) {
  std::error_code gone;
  return std::distance(
      std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", gone), {});
}

// The record of a connection is about 500 bytes: after two thousand connections a leak of one per
// connection shows in the resident memory. The first connections let the allocator's pools and the
// descriptor tables grow to their final size.
TEST(UnauthenticatedConnections, LeaveNothingBehind) {
  constexpr int kWarmUp = 200, kConnections = 2000, kBytesEach = 256;
  const int port = free_port();
  const auto rank = [&](int r) {
    return tiny_train({"--steps", "100000000", "--synthetic-size", "6400", "--log-every", "50",
                       "--init-method", "tcp://127.0.0.1:" + std::to_string(port), "--rank",
                       std::to_string(r), "--world-size", "2"});
  };
  Running zero(rank(0)), one(rank(1));
  ASSERT_TRUE(trains(zero)) << zero.err();
  const std::ptrdiff_t descriptors_before = descriptors(zero.pid());
  std::mt19937 random(3);
  const auto connect_many = [&](int count) {
    int connected = 0;
    for (int i = 0; i < count; ++i) {
      connected += connect_and_reset(port, random) ? 1 : 0;
      if (i % 100 == 99) {
        ASSERT_TRUE(is_closed_by_server(port));
      }
    }
    EXPECT_GT(connected, count * 9 / 10);
  };
  const auto all_closed = [&] { return descriptors(zero.pid()) <= descriptors_before; };
  connect_many(kWarmUp);
  EXPECT_TRUE(test_support::eventually(all_closed));
  const long before = resident_kib(zero.pid());
  const auto begin = Clock::now();
  connect_many(kConnections);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  EXPECT_TRUE(test_support::eventually(all_closed)) << "rank 0 keeps closed connections";
  const std::string log = zero.out(), said = zero.err();
  const long after = resident_kib(zero.pid());
  std::printf("%d connections in %.1f s; resident memory of rank 0: %ld -> %ld KiB\n", kConnections,
              seconds, before, after);
  EXPECT_LT(after, before + kConnections * kBytesEach / 1024);
  EXPECT_TRUE(test_support::eventually([&] {
    return zero.out().find("Step [", log.size()) != std::string::npos;
  })) << "training has stopped";
  EXPECT_LT(std::ranges::count(said, '\n'), kConnections / 10) << "one line per connection?";
  for (const Running* program : {&zero, &one}) kill(program->pid(), SIGINT);
  EXPECT_EQ(zero.wait(), 130) << zero.err().substr(0, 2000);
  EXPECT_EQ(one.wait(), 130);
}

// Local addresses, as /proc/net/tcp writes them, of the listening sockets that these processes
// hold.
std::set<std::string> listening(const std::vector<int>& pids) {
  std::set<std::string> sockets, found;
  for (const int pid : pids) {
    std::error_code gone;
    for (const auto& fd :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", gone)) {
      const std::string target = std::filesystem::read_symlink(fd.path(), gone).string();
      if (target.rfind("socket:[", 0) == 0) sockets.insert(target.substr(8, target.size() - 9));
    }
  }
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(table);
    std::string line;
    for (std::getline(lines, line); std::getline(lines, line);) {
      std::istringstream fields(line);
      std::string number, local, remote, state, skipped, inode;
      fields >> number >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) fields >> skipped;
      fields >> inode;
      if (state == "0A" && sockets.contains(inode)) found.insert(local.substr(0, local.find(':')));
    }
  }
  return found;
}

std::vector<int> with_children(int pid) {
  std::vector<int> pids = {pid};
  std::ifstream children("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) +
                         "/children");
  for (int child = 0; children >> child;) {
    const std::vector<int> below = with_children(child);
    pids.insert(pids.end(), below.begin(), below.end());
  }
  return pids;
}

TEST(Listeners, AreOnLoopbackIfAllRanksAreOnOneHost) {
  std::istringstream listed(call("env").out);
  int tried = 0;
  for (std::string word, backend, usable; listed >> word;) {
    if (word != "backend") continue;
    listed >> backend >> usable;
    if (usable != "usable" || backend == "inproc") continue;
    Running job(tiny_train(argv(
        "--steps 100000000 --synthetic-size 6400 --spawn 2 --log-every 50 --backend", backend)));
    std::set<std::string> addresses;
    EXPECT_TRUE(test_support::eventually([&] {
      addresses.merge(listening(with_children(job.pid())));
      return job.out().find("Step [") != std::string::npos;
    })) << backend;
    addresses.merge(listening(with_children(job.pid())));
    EXPECT_EQ(addresses, std::set<std::string>{"0100007F"}) << backend;  // 127.0.0.1
    kill(job.pid(), SIGINT);
    EXPECT_EQ(job.wait(), 130) << backend;
    ++tried;
  }
  EXPECT_GT(tried, 0);
}

TEST(Starts, ThreeHundredInARow) {
  for (int i = 0; i < 300; ++i) {
    const auto result = test_support::run_command(tiny_train({"--steps", "1", "--spawn", "2"}));
    ASSERT_EQ(result.exit_code, 0) << "start " << i << ": " << result.err;
  }
}

TEST(Starts, EightJobsAtOnceByTheirOwnPorts) {
  std::vector<std::thread> jobs;
  std::vector<int> codes(8, -1);
  for (std::size_t j = 0; j < codes.size(); ++j)
    jobs.emplace_back([&, j] {
      codes[j] = 0;
      for (int i = 0; i < 10 && codes[j] == 0; ++i)
        codes[j] =
            test_support::run_command(tiny_train({"--steps", "2", "--spawn", "2"})).exit_code;
    });
  for (std::thread& t : jobs) t.join();
  EXPECT_EQ(codes, std::vector<int>(8, 0));
}

TEST(Starts, RanksMayStartInAnyOrder) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    const TemporaryDirectory folder;
    const int port = free_port();
    std::vector<int> order = {0, 1, 2, 3};
    std::ranges::shuffle(order, random);
    std::vector<std::unique_ptr<Running>> ranks;
    for (const int r : order) {
      const std::string method = round % 2 == 0 ? "tcp://127.0.0.1:" + std::to_string(port)
                                                : "file://" + (folder / "rendezvous");
      ranks.push_back(std::make_unique<Running>(tiny_train(
          argv("--steps 1 --world-size 4 --init-method", method, "--rank", std::to_string(r)))));
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));
    }
    for (std::size_t i = 0; i < ranks.size(); ++i)
      ASSERT_EQ(ranks[i]->wait(), 0) << "rank " << order[i] << ": " << ranks[i]->err();
    EXPECT_FALSE(std::filesystem::exists(folder / "rendezvous"));
  }
}

TEST(Starts, ThirtyTwoRanks) {
  const auto begin = Clock::now();
  const auto result = test_support::run_command(tiny_train({"--steps", "1", "--spawn", "32"}));
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_CONTAINS(result.out, "32 ranks");
  std::printf("32 ranks started, joined, trained a step and left in %.2f s\n", seconds);
}

}  // namespace
