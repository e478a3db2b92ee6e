// Connections of strangers to Gloo's ports: they cost an attempt to connect, not the job.
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backends/store/tcp_socket.h"
#include "backends/transport/gloo/gloo_backend.h"
#include "backends/transport/gloo/gloo_mesh.h"
#include "tests/backends/store/connect_to_port.h"
#include "tests/backends/transport/link_job.h"
#include "tests/support/expect_contains.h"

namespace {

using backends::BackendContext;
using backends::Socket;
using link_job::Job;
using link_job::sums;

// What a stranger does with a port for a pair, in the first attempts.
struct Stranger {
  const char* name;
  int attempts;  // to spoil
  bool stays, speaks;
  bool second = false;  // takes the other of the two ports for a peer
};
void PrintTo(const Stranger& stranger, std::ostream* out) { *out << stranger.name; }

class GlooStrangers : public testing::TestWithParam<Stranger> {};

TEST_P(GlooStrangers, CostAnAttempt) {
  const Stranger& stranger = GetParam();
  Job job;
  std::mutex mutex;
  std::vector<Socket> held;
  std::string notices;
  // Ports are taken before the ranks learn of them.
  job.store.seen = [&](const std::string& key, const std::string& value) {
    for (int attempt = 0; attempt < stranger.attempts; ++attempt) {
      const std::string of_attempt = "mesh/gloo/" + std::to_string(attempt) + "/";
      if (!key.starts_with(of_attempt) || std::isdigit(key[of_attempt.size()]) == 0) continue;
      sockaddr_in address{};
      const std::size_t at = stranger.second ? value.size() / 2 : 0;
      std::memcpy(&address, value.data() + at, std::min(value.size() - at, sizeof address));
      Socket socket = group_harness::connect_to_port(ntohs(address.sin_port));
      if (stranger.speaks)
        (void)send(socket.fd(), std::string(4096, 'x').data(), 4096, MSG_NOSIGNAL);
      const std::lock_guard lock(mutex);
      if (stranger.stays) held.push_back(std::move(socket));
    }
  };
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = sums(job, 3, backends::make_gloo_communicator, [&](BackendContext& context) {
    context.notice = [&](const std::string& line) {
      const std::lock_guard lock(mutex);
      notices += line + "\n";
    };
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
  EXPECT_CONTAINS(notices, "backend gloo connects again: rank 1");
  EXPECT_EQ(job.store.size(), 0u) << "keys are left behind";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(9))
      << "a rank waited for all of the 10 s that a proof may take";
}

INSTANTIATE_TEST_SUITE_P(Kinds, GlooStrangers,
                         testing::Values(Stranger{"Silent", 1, true, false},
                                         Stranger{"Talking", 1, true, true},
                                         Stranger{"Passing", 1, false, false},
                                         Stranger{"OnTheOtherPort", 1, true, true, true},
                                         Stranger{"PassingTheOtherPort", 1, false, false, true},
                                         Stranger{"Thrice", 3, true, true}),
                         [](const auto& test) { return std::string(test.param.name); });

void shut_down_all_connections() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0) shutdown(fd, SHUT_RDWR);
  }
}

TEST(GlooPairs, ARankWithAnotherSecretIsNotLetIn) {
  Job job;
  const auto errors = sums(job, 2, backends::make_gloo_communicator, [](BackendContext& context) {
    if (context.rank == 1) context.secret.key = std::string(32, 'x');
  });
  for (const std::string& error : errors)
    EXPECT_CONTAINS(error, "was made by a process that does not know this job's secret");
}

// Gloo tells of the end of a connection whoever waits for it at that moment, and nobody later.
TEST(GlooPairs, AConnectionThatEndsBeforeItsProofIsNotWaitedFor) {
  Job job;
  std::string notices;
  job.store.seen = [](const std::string& key, const std::string&) {
    if (key != "mesh/gloo/0/verdict/1") return;
    shut_down_all_connections();  // rank 0 is about to take its handles
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // its pair has noticed
  };
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = sums(job, 2, backends::make_gloo_communicator, [&](BackendContext& context) {
    if (context.rank == 0)
      context.notice = [&](const std::string& line) { notices += line + "\n"; };
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
  EXPECT_CONTAINS(notices, "backend gloo connects again: rank 10: the connection to rank 11");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, job.timeout / 2);
}

// A network of the calling thread's own, and of threads that it starts, with so many ports for
// those who do not choose one.
bool enter_network_of_few_ports(int ports) {
  if (unshare(CLONE_NEWNET) != 0) return false;
  const Socket any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP;
  std::ofstream range("/proc/sys/net/ipv4/ip_local_port_range");
  range << 40000 << " " << 40000 + ports - 1 << std::flush;
  return range && ioctl(any.fd(), SIOCSIFFLAGS, &loopback) == 0;
}

// The kernel gives the port of one connection to others that go elsewhere. Ranks that took such a
// connection for theirs would shut down the other one, and wait for the end of their own.
TEST(GlooPairs, OfOneLocalPortAreToldApart) {
  bool entered = true;
  for (int round = 0; entered && round < 3; ++round) {
    std::thread([&] {
      entered = enter_network_of_few_ports(20);  // 12 are listened to, 6 connections share the rest
      if (!entered) return;
      Job job;
      job.timeout = test_support::deadline(std::chrono::seconds(4));
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_EQ(sums(job, 3, backends::make_gloo_communicator), std::vector<std::string>(3));
      EXPECT_LT(std::chrono::steady_clock::now() - begin, job.timeout / 2) << "round " << round;
    }).join();
  }
  if (!entered) GTEST_SKIP() << "may not make a network";
}

// To a host that is cut off, or behind a firewall: what is sent there to connect is lost.
class GlooPairsCutOff : public testing::Test {
 protected:
  void SetUp() override {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(bind(full_.fd(), reinterpret_cast<sockaddr*>(&address_), sizeof address_), 0);
    ASSERT_EQ(listen(full_.fd(), 0), 0);
    socklen_t length = sizeof address_;
    ASSERT_EQ(getsockname(full_.fd(), reinterpret_cast<sockaddr*>(&address_), &length), 0);
    first_ = group_harness::connect_to_port(port());
  }
  int port() const { return ntohs(address_.sin_port); }
  // Of rank 0, whose peer is said to be there.
  std::shared_ptr<backends::GlooMesh> mesh(BackendContext& context) {
    context.address = "127.0.0.2";  // the larger one connects
    auto mesh = std::make_shared<backends::GlooMesh>(context);
    std::vector<char> published = mesh->in(1).address().bytes();
    std::memcpy(published.data(), &address_, sizeof address_);
    const std::string of_pair(published.begin(), published.end());
    job_.store.set("mesh/1/0", of_pair + of_pair);
    return mesh;
  }

  Job job_;

 private:
  Socket full_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)}, first_;
  sockaddr_in address_{};
};

TEST_F(GlooPairsCutOff, AnAbortEndsTheWaitForAConnection) {
  BackendContext context = job_.context(0, 2);
  const auto waits = mesh(context);
  const auto begin = std::chrono::steady_clock::now();
  const std::jthread aborts([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    waits->shut_down();
  });
  const std::string trouble = waits->connect(context);
  EXPECT_CONTAINS(trouble, "connect [127.0.0.1]:");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, job_.timeout / 2);
}

TEST_F(GlooPairsCutOff, AConnectionIsWaitedForNoLongerThanTheTimeout) {
  BackendContext context = job_.context(0, 2);
  context.timeout = std::chrono::seconds(1);
  const auto waits = mesh(context);
  const auto begin = std::chrono::steady_clock::now();
  const std::string trouble = waits->connect(context);
  EXPECT_CONTAINS(trouble, "no connection with rank 11 at 127.0.0.1:" + std::to_string(port()));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(9))
      << "Gloo waits five times its timeout for each of two connections";
}

}  // namespace
