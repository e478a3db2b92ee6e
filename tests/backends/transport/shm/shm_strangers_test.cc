// Connections of strangers to the socket from which ranks get shared memory.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "backends/store/tcp_socket.h"
#include "backends/transport/shm/shm_backend.h"
#include "tests/backends/transport/link_job.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_clock.h"
#include "tests/support/time_limits.h"

namespace {

using namespace std::chrono_literals;
using backends::Socket;
using link_job::Job;
using link_job::sums;
using Clock = std::chrono::steady_clock;

// Idle connections of the same user; those of other users are closed at once.
TEST(ShmStrangers, DoNotDelayTheStart) {
  Job job;
  std::vector<Socket> held;
  job.store.seen = [&](const std::string& key, const std::string& name) {
    if (key != "mesh/shm") return;
    for (int i = 0; i < 100; ++i) {
      Socket socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::memcpy(address.sun_path + 1, name.data(), name.size());
      (void)connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address),
                    static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size()));
      if (i % 2 == 1) (void)send(socket.fd(), "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      held.push_back(std::move(socket));
    }
  };
  const auto start = Clock::now();
  const auto errors = sums(job, 3, backends::make_shm_communicator);
  EXPECT_EQ(errors, std::vector<std::string>(3));
  EXPECT_FALSE(test_support::is_past(start, 2s));
}

// The clock alone passes.
TEST(ShmSegments, AnOwnerThatDoesNotComeIsNamed) {
  Job job;
  job.clock = &job.test_clock;
  job.timeout = 600s;
  const test_support::PassingTime time(job.test_clock, 60s, [] { return true; });
  const auto errors =
      group_harness::outcomes(1, [&](int) { backends::make_shm_communicator(job.context(1, 2)); });
  EXPECT_VALUES(errors[0], "timeout 600000 ms rank 10's memory");
}

TEST(ShmStrangers, ARankWithAnotherSecretIsNotLetIn) {
  Job job;
  const auto errors = link_job::errors_with_another_secret(job, backends::make_shm_communicator);
  EXPECT_CONTAINS(errors[0], "timeout after");
  EXPECT_VALUES(errors[1], "authentication: owner shared memory");
}

}  // namespace
