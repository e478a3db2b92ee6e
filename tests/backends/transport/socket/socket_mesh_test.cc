// The socket backend: authentication of the mesh, striping, ranks that finish early, allocations.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "backends/backend_error.h"
#include "backends/transport/socket/mesh_proof.h"
#include "backends/transport/socket/socket_backend.h"
#include "backends/transport/socket/socket_mesh.h"
#include "io/base/machine/cpu_affinity.h"
#include "io/base/time/deadline.h"
#include "tests/backends/group_harness.h"
#include "tests/backends/transport/link_job.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/expect_contains.h"
#include "tests/support/time_limits.h"

namespace {

using namespace std::chrono_literals;
using backends::BackendContext;
using backends::SocketMesh;
using link_job::Job;
using Clock = std::chrono::steady_clock;

backends::Endpoint endpoint_of(map_store::MapStore& store, int rank) {
  return backends::parse_endpoint(
      store.get("mesh/socket/" + std::to_string(rank), test_support::deadline(5s)), "test");
}

backends::Socket connect_to(const backends::Endpoint& to) {
  std::string reason;
  return backends::connect_to(to, base::deadline_in(test_support::deadline(2s)), reason);
}

void send_bytes(const backends::Socket& socket, const void* data, std::size_t bytes) {
  [[maybe_unused]] const ssize_t n = send(socket.fd(), data, bytes, MSG_NOSIGNAL);
}

bool is_readable(int fd) {
  pollfd polled{fd, POLLIN, 0};
  return poll(&polled, 1, 0) > 0;
}

std::string timeout_text(std::chrono::milliseconds timeout) {
  return "peer: timeout after " + std::to_string(timeout.count()) + " ms, no connection with ";
}

TEST(SocketMesh, UnauthenticatedConnectionsDoNotKeepRanksApart) {
  Job job;
  const auto start = Clock::now();
  std::atomic<int> connected{0};
  const auto errors = group_harness::outcomes(3, [&](int who) {
    if (who < 2) {
      if (who == 1) std::this_thread::sleep_for(300ms);
      const SocketMesh mesh(job.context(who, 2));
      EXPECT_GE(mesh.fd(1 - who, 0), 0);
      ++connected;
      return;
    }
    std::vector<backends::Socket> clients;
    const backends::Endpoint listener =
        endpoint_of(job.store, 0);  // removed from the store once the ranks are connected
    for (int i = 0; i < 200; ++i) {
      clients.push_back(connect_to(listener));
      const backends::MeshHello hello = backends::make_hello(1, 0, 0, 1, listener.port);
      const std::string guess(backends::kMacBytes, 'x'), noise(500, '!');
      if (i % 4 == 1) send_bytes(clients.back(), noise.data(), noise.size());
      if (i % 4 == 2) send_bytes(clients.back(), &hello, 10);
      if (i % 4 == 3) {
        send_bytes(clients.back(), &hello, sizeof hello);
        send_bytes(clients.back(), guess.data(), guess.size());
      }
    }
    EXPECT_TRUE(test_support::eventually([&] { return connected == 2; }));  // the idle ones stay
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
  EXPECT_FALSE(test_support::is_past(start, 5s));
  EXPECT_EQ(job.store.size(), 0u) << "keys are left behind";
}

TEST(SocketMesh, AnImpostorInARanksPlaceIsAnAuthenticationError) {
  Job job;
  const auto errors = link_job::errors_with_another_secret(job, backends::make_socket_communicator);
  EXPECT_EQ(errors[0], timeout_text(job.timeout) + "rank 11");
  EXPECT_EQ(errors[1].rfind("authentication: the process at 127.0.0.1:", 0), 0u) << errors[1];
  EXPECT_CONTAINS(errors[1], "expected to be rank 10");
}

TEST(SocketMesh, ARankWithOtherStreamsIsAMismatch) {
  Job job;
  job.timeout = test_support::deadline(3s);
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    BackendContext context = job.context(rank, 2);
    context.streams = 2 + rank;
    const SocketMesh mesh(context);
  });
  EXPECT_LINES(errors, "mismatch: rank 10 2 connections rank 11 3",
               "mismatch: rank 11 3 connections rank 10 2");
}

TEST(SocketMesh, AMissingRankIsNamed) {
  Job job;
  job.timeout = test_support::deadline(1s);
  const auto errors =
      group_harness::outcomes(2, [&](int rank) { const SocketMesh mesh(job.context(rank, 4)); });
  EXPECT_EQ(errors[0], timeout_text(job.timeout) + "rank 12, 13");
  EXPECT_EQ(errors[1], timeout_text(job.timeout) + "rank 12, 13");
}

// The clock alone passes.
TEST(SocketMesh, ARankWithoutAnAddressIsNamed) {
  Job job;
  job.clock = &job.test_clock;
  job.timeout = 600s;
  const test_support::PassingTime time(job.test_clock, 60s, [] { return true; });
  const auto errors =
      group_harness::outcomes(1, [&](int) { const SocketMesh mesh(job.context(1, 2)); });
  EXPECT_VALUES(errors[0], "timeout 600000 ms address rank 10");
}

TEST(SocketMesh, AKnownFailureEndsTheSetUp) {
  Job job;
  const auto start = Clock::now();
  const auto errors = group_harness::outcomes(2, [&](int who) {
    if (who == 0) const SocketMesh mesh(job.context(0, 2));
    std::this_thread::sleep_for(200ms);
    job.watch.failed = true;
  });
  EXPECT_EQ(errors[0], "peer: rank 1 died");
  EXPECT_FALSE(test_support::is_past(start, 2s));
}

// To a host that is cut off, or behind a firewall: what is sent there to connect is lost.
TEST(SocketMesh, AConnectionThatIsNotAnsweredIsGivenUp) {
  const backends::Socket full(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(full.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(full.fd(), 0), 0);
  const backends::Endpoint endpoint = backends::local_endpoint(full.fd());
  const backends::Socket first = connect_to(endpoint);
  Job job;
  job.clock = &job.test_clock;
  job.store.set("mesh/socket/0", to_string(endpoint));
  const BackendContext context = job.context(1, 2);
  const auto outcome = [&] {
    return group_harness::outcomes(1, [&](int) { const SocketMesh mesh(context); })[0];
  };
  {
    const test_support::PassingTime time(job.test_clock, job.timeout, [] { return true; });
    EXPECT_VALUES(outcome(), timeout_text(job.timeout) + "rank 10; no answer " +
                                 to_string(endpoint) + ": firewall --relay rank0:PORT");
  }
  job.watch.failed = true;  // the clock stands still
  EXPECT_EQ(outcome(), "peer: rank 1 died");
}

// Where the kernel's default is BBR, whose timers cost more than the segments.
// poll() looks up a descriptor again after it was woken, but waits only for the connection that it
// had when it began. So a caller that slept through a break must begin again.
TEST(SocketMesh, ARestoredConnectionWakesItsCaller) {
  Job job;
  std::atomic<int> woken{0};
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    BackendContext context = job.context(rank, 2);
    context.link_patience = test_support::deadline(30s);
    SocketMesh mesh(context);
    EXPECT_FALSE(is_readable(mesh.wake_fd()));
    if (rank == 0) {
      EXPECT_TRUE(mesh.link(1, 0).break_off(ECONNRESET));
    }
    EXPECT_TRUE(test_support::eventually([&] { return is_readable(mesh.wake_fd()); }));
    EXPECT_FALSE(mesh.link(1 - rank, 0).is_down());
    mesh.take_wake();
    EXPECT_FALSE(is_readable(mesh.wake_fd()));
    EXPECT_FALSE(mesh.aborted());
    ++woken;
    EXPECT_TRUE(test_support::eventually([&] { return woken == 2; }));
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST(SocketMesh, ConnectionsWithinTheMachineAreNotPaced) {
  Job job;
  const auto errors = group_harness::outcomes(3, [&](int rank) {
    const SocketMesh mesh(job.context(rank, 3));
    for (const int peer : {(rank + 1) % 3, (rank + 2) % 3})
      EXPECT_NE(link_job::congestion_control(mesh.fd(peer, 0)), "bbr");
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

TEST(TcpSocket, OnlyPacedCongestionControlIsReplaced) {
  for (const std::string name : {"bbr", "reno"}) {
    const backends::Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (setsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name.data(),
                   static_cast<socklen_t>(name.size())) != 0)
      continue;  // this kernel does not have it
    backends::do_not_pace(socket.fd());
    EXPECT_EQ(link_job::congestion_control(socket.fd()), "reno");
  }
}

// Every collective at a size that is sent in blocks, over three connections per peer.
TEST(SocketStreams, StripedCollectivesGiveTheSame) {
  for (const int world : {2, 3, 5}) {
    const group_harness::Listener listener = group_harness::open_listener();
    const auto errors = group_harness::outcomes(world, [&](int rank) {
      backends::GroupOptions o = group_harness::options_for(rank, world, listener.port);
      o.backend = "socket";
      o.links.streams = 3;
      if (rank == 0) o.listen.fd = listener.fd;
      const auto group = backends::join_group(o);
      const auto communicator = group->make_communicator();
      const std::size_t n = 500'003;
      std::vector<std::int64_t> data(n), all(n * static_cast<std::size_t>(world));
      const auto fill = [&] {
        for (std::size_t i = 0; i < n; ++i) data[i] = static_cast<std::int64_t>(i) * (rank + 1);
      };
      for (int repeat = 0; repeat < 3; ++repeat) {
        fill();
        communicator->all_reduce(data.data(), n, base::DType::kI64, backends::ReduceOp::kSum);
        for (std::size_t i = 0; i < n; ++i)
          ASSERT_EQ(data[i], static_cast<std::int64_t>(i) * world * (world + 1) / 2) << i;
        fill();
        communicator->broadcast(data.data(), n * 8, world - 1);
        for (std::size_t i = 0; i < n; ++i)
          ASSERT_EQ(data[i], static_cast<std::int64_t>(i) * world) << i;
        fill();
        communicator->all_gather(data.data(), n * 8, all.data());
        for (std::size_t i = 0; i < all.size(); ++i)
          ASSERT_EQ(all[i], static_cast<std::int64_t>(i % n) * static_cast<std::int64_t>(i / n + 1))
              << i;
        communicator->barrier();
      }
      group->leave();
    });
    EXPECT_EQ(errors, std::vector<std::string>(static_cast<std::size_t>(world)));
  }
}

TEST(SocketCommunicator, TheDataOfARankThatFinishesEarlyStillArrives) {
  for (int i = 0; i < 5; ++i) {
    group_harness::run_ranks("socket", 3, [](backends::Group& group) {
      std::vector<char> mine(3 << 20, static_cast<char>(group.rank())), all(3 * mine.size());
      auto communicator = group.make_communicator();
      communicator->all_gather(mine.data(), mine.size(), all.data());
      communicator.reset();  // the others may still be reading
      for (std::size_t at = 0; at < all.size(); at += 1000)
        ASSERT_EQ(all[at], static_cast<char>(at / mine.size()));
    });
  }
}

// More ranks than cores: most of them talk to the few that sum, and to nobody else.
TEST(SocketCommunicator, RanksThatShareCoresGetSumsAndLearnOfADifferentCall) {
  const int world = base::count_of_cpus() + 1, last = world - 1;
  if (world > 16) GTEST_SKIP() << "too many cores to have more ranks";
  Job job;
  std::vector<std::unique_ptr<backends::Communicator>> made(static_cast<std::size_t>(world));
  const auto errors = group_harness::outcomes(world, [&](int rank) {
    auto& communicator = made[static_cast<std::size_t>(rank)];
    communicator = backends::make_socket_communicator(job.context(rank, world));
    std::vector<std::int64_t> data(100'001);
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{20'000}, data.size()}) {
      for (std::size_t i = 0; i < n; ++i) data[i] = static_cast<std::int64_t>(i) * (rank + 1);
      communicator->all_reduce(data.data(), n, base::DType::kI64, backends::ReduceOp::kSum);
      for (std::size_t i = 0; i < n; ++i)
        ASSERT_EQ(data[i], static_cast<std::int64_t>(i) * world * (world + 1) / 2) << i;
    }
    try {
      communicator->all_reduce(data.data(), rank == last ? 2 : 1, base::DType::kI64,
                               backends::ReduceOp::kMax);
    } catch (const backends::Error&) {
      communicator->abort("test");
      throw;
    }
  });
  for (const int rank : {0, last})
    EXPECT_CONTAINS(errors[static_cast<std::size_t>(rank)],
                    "mismatch: ranks disagree: rank 10 called all_reduce max of 1 i64, rank " +
                        std::to_string(10 + last) + " all_reduce max of 2 i64");
  for (const std::string& error : errors) EXPECT_NE(error, "");
}

// All ranks are threads of this process, and the store's threads allocate when they send a
// heartbeat: hence the long interval.
TEST(SocketCommunicator, CallsAllocateNothing) {
#if !COUNTS_ALLOCATIONS
  GTEST_SKIP() << "allocations are not counted in this build";
#endif
  const group_harness::Listener listener = group_harness::open_listener();
  const auto errors = group_harness::outcomes(3, [&](int rank) {
    backends::GroupOptions o = group_harness::options_for(rank, 3, listener.port);
    o.backend = "socket";
    o.heartbeat_ms = 60'000;
    if (rank == 0) o.listen.fd = listener.fd;
    const auto group = backends::join_group(o);
    {
      const auto communicator = group->make_communicator();
      std::vector<float> data(300'000, 1.f), all(3 * data.size());
      const auto call_all = [&] {
        for (const std::size_t count : {std::size_t{1}, std::size_t{5000}, data.size()}) {
          communicator->all_reduce(data.data(), count, base::DType::kF32, backends::ReduceOp::kMax);
          communicator->reduce_scatter(data.data(), count, base::DType::kF32,
                                       backends::ReduceOp::kMax);
          communicator->broadcast(data.data(), count * 4, 1);
          communicator->all_gather(data.data(), count * 4, all.data());
        }
        communicator->barrier();
      };
      // Other threads are still being set up in the first rounds. All ranks go by rank 0's count.
      int without = 0;  // rounds in a row
      for (int round = 0; round < 40 && without < 3; ++round) {
        communicator->barrier();
        const long before = test_support::allocations;
        call_all();
        communicator->barrier();
        long allocated = test_support::allocations - before;
        communicator->broadcast(&allocated, sizeof allocated, 0);
        without = allocated == 0 ? without + 1 : 0;
        if (without == 0) test_support::pause(50ms);
      }
      EXPECT_EQ(without, 3);
    }
    group->leave();
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

}  // namespace
