// The set-up of ZeroMQ's links under attack: changed bytes, and floods of connections.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>

#include "backends/transport/zmq/zmq_guard.h"
#include "backends/transport/zmq/zmq_links.h"
#include "tests/backends/group_harness.h"
#include "tests/backends/transport/link_job.h"
#include "tests/backends/transport/link_relay.h"
#include "tests/support/time_limits.h"

namespace {

using namespace std::chrono_literals;
using backends::BackendContext;
using backends::ZmqEncryption;
using backends::ZmqLinks;
using link_job::ChangedByte;
using link_job::Job;
using link_job::LinkRelay;
using link_job::Way;

constexpr const char* kRecord = "mesh/zmq/0/1";  // the listening rank's for the other one

int port_of(const std::string& record) {
  std::string key, mechanism, endpoint;
  std::istringstream(record) >> key >> mechanism >> endpoint;
  return backends::parse_endpoint(endpoint.substr(6), "test").port;
}

// The record with the address of a relay.
std::string relayed(const std::string& record, const backends::Secret& secret) {
  std::string key, mechanism, endpoint;
  std::istringstream(record) >> key >> mechanism >> endpoint;
  const std::string body =
      key + " " + mechanism + " tcp://" + LinkRelay::kHost + ":" + std::to_string(port_of(record));
  return body + " " +
         backends::to_hex(
             backends::keyed_hash(secret, "engine zmq record", std::string(kRecord) + " " + body));
}

// Each sends the other a head.
void exchange_heads(ZmqLinks& links, int rank) {
  const auto word = backends::transfer_word(backends::Operation::kBarrier, 1, 0);
  links.send_head(1 - rank, 1, word, &rank, sizeof rank);
  const backends::Head theirs = links.receive_head(1 - rank, 1);
  int other = -1;
  ASSERT_EQ(theirs.bytes, sizeof other);
  std::memcpy(&other, theirs.payload, sizeof other);
  EXPECT_EQ(other, 1 - rank);
  links.finish_sends();
}

class ZmqSetUp : public ::testing::TestWithParam<ZmqEncryption> {};

// Bytes that pass each way until both ranks have connected.
struct SetUpBytes {
  std::size_t to_listener = 0, to_connector = 0;
};

struct RelayedStart {
  std::vector<std::string> errors;
  bool changed = false;
  SetUpBytes bytes;
};

RelayedStart start_over_relay(ZmqEncryption encryption, ChangedByte byte) {
  Job job;
  job.timeout = test_support::deadline(60s);
  std::unique_ptr<LinkRelay> relay;
  job.store.seen = [&](const std::string& key, const std::string& value) {
    if (key == kRecord) relay = std::make_unique<LinkRelay>(port_of(value), byte);
  };
  job.store.change = [&](const std::string& key, const std::string& value) {
    return key == kRecord ? relayed(value, job.context(0, 2).secret) : value;
  };
  RelayedStart start;
  std::vector<std::unique_ptr<ZmqLinks>> links(2);
  start.errors = group_harness::outcomes(2, [&](int rank) {
    auto& own = links[static_cast<std::size_t>(rank)];
    own = std::make_unique<ZmqLinks>(job.context(rank, 2), encryption);
    own->connect(job.context(rank, 2));
    if (rank == 1)
      start.bytes = {relay->passed(Way::kToListener), relay->passed(Way::kToConnector)};
    exchange_heads(*own, rank);
  });
  EXPECT_EQ(job.store.size(), 0u) << "keys are left behind";
  start.changed = relay->has_changed();
  return start;
}

// Many at once: each waits for another attempt, mostly.
TEST_P(ZmqSetUp, AChangedByteCostsAnAttemptAndNoSetUp) {
  const RelayedStart plain = start_over_relay(GetParam(), {Way::kToListener, SIZE_MAX});
  ASSERT_EQ(plain.errors, std::vector<std::string>(2));
  ASSERT_GT(plain.bytes.to_listener, 64u);  // the greeting of the protocol alone
  ASSERT_GT(plain.bytes.to_connector, 64u);
  std::vector<ChangedByte> bytes;
  for (std::size_t at = 0; at < plain.bytes.to_listener; at += 3)
    bytes.push_back({Way::kToListener, at});
  for (std::size_t at = 0; at < plain.bytes.to_connector; at += 3)
    bytes.push_back({Way::kToConnector, at});
  std::atomic<std::size_t> next{0}, changed{0};
  std::mutex mutex;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 12; ++t)
    threads.emplace_back([&] {
      for (std::size_t i; (i = next++) < bytes.size();) {
        const RelayedStart start = start_over_relay(GetParam(), bytes[i]);
        if (start.changed) ++changed;
        const std::lock_guard lock(mutex);
        EXPECT_EQ(start.errors, std::vector<std::string>(2))
            << "byte " << bytes[i].at << (bytes[i].way == Way::kToListener ? " to" : " from")
            << " the listener";
      }
    });
  threads.clear();
  EXPECT_EQ(changed, bytes.size());
}

// The connecting rank may send as soon as its end stands. The other end learns that from the store,
// which answers late here.
TEST_P(ZmqSetUp, WhatIsSentBeforeTheOtherEndKnowsOfTheLinkArrives) {
  constexpr int kLooks = 20;  // each a few milliseconds after the one before
  Job job;
  job.timeout = test_support::deadline(60s);
  std::atomic<bool> sent{false};
  int looks = 0;  // that came when the head was under way; under the lock of the store
  job.store.change_sum = [&](const std::string&, std::int64_t value) {
    if (value == 0 || looks == kLooks || (sent && ++looks == kLooks)) return value;
    return std::int64_t{0};
  };
  std::vector<std::unique_ptr<ZmqLinks>> links(2);
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    auto& own = links[static_cast<std::size_t>(rank)];
    own = std::make_unique<ZmqLinks>(job.context(rank, 2), GetParam());
    own->connect(job.context(rank, 2));
    const auto word = backends::transfer_word(backends::Operation::kBarrier, 1, 0);
    own->send_head(1 - rank, 1, word, &rank, sizeof rank);
    if (rank == 1) {
      own->send(0, backends::Lane::kShare, 0, "abcd", 4);
      sent = true;
    } else {
      EXPECT_EQ(std::string(own->receive(1, backends::Lane::kShare, 0, 4), 4), "abcd");
    }
    EXPECT_EQ(own->receive_head(1 - rank, 1).bytes, sizeof rank);
    own->finish_sends();
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
  EXPECT_EQ(looks, kLooks);
}

// Connects to a port again and again, from another process, and keeps `kept` connections open.
class Flood {
 public:
  explicit Flood(std::size_t kept) {
    EXPECT_EQ(pipe(port_), 0);
    EXPECT_EQ(pipe(open_), 0);
    pid_ = fork();
    if (pid_ == 0) run(kept);
  }
  ~Flood() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    for (const int fd : {port_[0], port_[1], open_[0], open_[1]}) close(fd);
  }
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;

  // Returns when as many connections are open.
  void begin(int port) {
    ASSERT_EQ(write(port_[1], &port, sizeof port), static_cast<ssize_t>(sizeof port));
    char byte = 0;
    ASSERT_EQ(read(open_[0], &byte, 1), 1);
  }

 private:
  [[noreturn]] void run(std::size_t kept) {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int port = 0;
    if (read(port_[0], &port, sizeof port) != sizeof port) _exit(1);
    std::deque<backends::Socket> sockets;
    for (std::size_t made = 0;; ++made) {
      std::string reason;
      sockets.push_back(
          backends::connect_to({"127.0.0.1", port}, base::deadline_in(100ms), reason));
      if (made == kept) static_cast<void>(!write(open_[1], "x", 1));
      if (sockets.size() > kept) {
        sockets.pop_front();
        usleep(2000);  // each holds one of the 64 places of the rank's own address for 0.1 s
      }
    }
  }

  int port_[2], open_[2];
  pid_t pid_ = 0;
};

std::size_t open_files() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

// Clients that only connect take a bounded number of descriptors; this process has 256.
TEST_P(ZmqSetUp, AFloodOfConnectionsNeitherEndsNorStarvesIt) {
  Flood flood(300);
  Job job;
  job.timeout = test_support::deadline(60s);
  std::atomic<int> port{0};
  job.store.seen = [&](const std::string& key, const std::string& value) {
    if (key == kRecord) port = port_of(value);
  };
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{256, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<std::unique_ptr<ZmqLinks>> links(2);
  std::atomic<bool> ended{false};
  std::size_t most = 0;
  std::jthread looks([&] {
    while (!ended) {
      most = std::max(most, open_files());
      std::this_thread::sleep_for(1ms);
    }
  });
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    auto& own = links[static_cast<std::size_t>(rank)];
    own = std::make_unique<ZmqLinks>(job.context(rank, 2), GetParam());
    if (rank == 1) {
      EXPECT_TRUE(test_support::eventually([&] { return port != 0; }));
      flood.begin(port);
    }
    own->connect(job.context(rank, 2));
    exchange_heads(*own, rank);
  });
  ended = true;
  looks.join();
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(errors, std::vector<std::string>(2));
  EXPECT_LT(most, 200u);
  // Nobody is left but the ranks.
  EXPECT_TRUE(test_support::eventually([&] { return open_files() < 100; })) << open_files();
}

INSTANTIATE_TEST_SUITE_P(Encryption, ZmqSetUp,
                         ::testing::Values(ZmqEncryption::kBetweenHosts, ZmqEncryption::kAlways),
                         [](const auto& which) {
                           return which.param == ZmqEncryption::kAlways ? "curve" : "plain";
                         });

}  // namespace
