// Encrypted connections between ranks: equal results, ranks that differ, changed bytes, and what
// somebody sees who reads all packets.
#include <gtest/gtest.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "backends/backend_error.h"
#include "backends/compose/table/backend_table.h"
#include "backends/secure/record_cipher.h"
#include "backends/transport/socket/mesh_proof.h"
#include "backends/transport/socket/socket_backend.h"
#include "backends/transport/socket/socket_mesh.h"
#include "tests/backends/group_harness.h"
#include "tests/backends/transport/link_job.h"
#include "tests/backends/transport/link_relay.h"
#include "tests/support/expect_contains.h"

namespace {

using backends::BackendContext;
using backends::Encryption;
using backends::LinkCipher;
using link_job::ChangedByte;
using link_job::Job;
using link_job::LinkRelay;
using link_job::Way;

std::vector<std::string> encrypting_backends() {
  std::vector<std::string> names;
  for (const backends::Backend& b : backends::all_backends()) {
    if (b.usable && b.reach == backends::Reach::kHosts && b.encrypts != backends::Encrypts::kNever)
      names.emplace_back(b.name);
  }
  return names;
}

std::vector<float> rank_values(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

// A job of two ranks; returns rank 1's results of several calls.
std::vector<float> results(const std::string& backend, Encryption encryption, std::size_t count,
                           const std::string& name = "") {
  const group_harness::Listener listener = group_harness::open_listener();
  std::vector<float> kept;
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    backends::GroupOptions o = group_harness::options_for(rank, 2, listener.port);
    o.backend = backend;
    o.links.encryption = encryption;
    if (rank == 0) o.listen.fd = listener.fd;
    const auto group = backends::join_group(o);
    {
      const auto communicator = group->make_communicator();
      std::vector<float> data = rank_values(rank, count), all(2 * count);
      communicator->all_gather(data.data(), count * sizeof(float), all.data());
      for (const std::size_t n : {std::size_t{1}, count / 20, count})
        communicator->all_reduce(data.data(), n, base::DType::kF32, backends::ReduceOp::kSum);
      std::string text = name;
      if (!text.empty()) communicator->broadcast(text.data(), text.size(), 0);
      communicator->barrier();
      if (rank == 1) kept = data;
      if (rank == 1) kept.insert(kept.end(), all.begin(), all.end());
    }
    group->leave();
  });
  EXPECT_EQ(errors, std::vector<std::string>(2)) << backend;
  return kept;
}

TEST(EncryptedLinks, ResultsAreThoseOfPlainOnes) {
  for (const std::string& backend : encrypting_backends()) {
    const std::vector<float> plain = results(backend, Encryption::kOff, 300'001);
    ASSERT_EQ(plain.size(), 3 * 300'001u);
    EXPECT_TRUE(results(backend, Encryption::kOn, 300'001) == plain) << backend;
  }
}

TEST(EncryptedLinks, TheReasonSaysSo) {
  group_harness::Listener listener = group_harness::open_listener();
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    backends::GroupOptions o = group_harness::options_for(rank, 2, listener.port);
    o.backend = "socket";
    o.links.encryption = Encryption::kOn;
    if (rank == 0) o.listen.fd = listener.fd;
    const auto group = backends::join_group(o);
    EXPECT_EQ(
        group->backend_reason(),
        "asked for; links encrypted (" + to_string(backends::fastest_cipher()) + "): --encrypt on");
    group->leave();
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

// Both know the secret: a process on the path can change neither side's cipher.
TEST(EncryptedLinks, APeerWithAnotherCipherIsAMismatch) {
  Job job;
  job.timeout = test_support::deadline(std::chrono::seconds(3));
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    BackendContext context = job.context(rank, 2);
    context.cipher = rank == 0 ? LinkCipher::kChaCha20Poly1305 : LinkCipher::kNone;
    const backends::SocketMesh mesh(context);
  });
  EXPECT_LINES(errors, "mismatch: rank 10 ChaCha20-Poly1305, rank 11 none: --encrypt",
               "mismatch: rank 11 none, rank 10 ChaCha20-Poly1305: --encrypt");
}

// The connecting side ends; the listening one waits until it learns of that from the group.
TEST(EncryptedLinks, AZmqPeerThatListensInTheClearIsAMismatch) {
  const auto all = backends::all_backends();
  const auto zmq = std::ranges::find_if(
      all, [](const backends::Backend& b) { return std::string(b.name) == "zmq"; });
  if (!zmq->usable) GTEST_SKIP() << zmq->note;
  Job job;
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    BackendContext context = job.context(rank, 2);
    if (rank == 0) context.timeout = std::chrono::seconds(1);
    context.encryption = rank == 0 ? Encryption::kOff : Encryption::kOn;
    context.cipher = rank == 0 ? LinkCipher::kNone : backends::fastest_cipher();
    const auto communicator = zmq->create(context);
  });
  EXPECT_VALUES(errors[1], "rank 11 curve rank 10 plain --encrypt");
  EXPECT_NE(errors[0], "");
}

int port_at(const std::string& endpoint) {
  return std::stoi(endpoint.substr(endpoint.rfind(':') + 1));
}

// Two ranks connect over a relay that changes one byte of their first record.
std::vector<std::string> sums_over_relay(ChangedByte changed) {
  Job job;
  std::unique_ptr<LinkRelay> relay;
  job.store.seen = [&](const std::string&, const std::string& value) {
    relay = std::make_unique<LinkRelay>(port_at(value), changed);
  };
  job.store.change = [](const std::string&, const std::string& value) {
    return LinkRelay::kHost + (":" + std::to_string(port_at(value)));
  };
  std::vector<std::unique_ptr<backends::Communicator>> made(2);
  return group_harness::outcomes(2, [&](int rank) {
    auto& communicator = made[static_cast<std::size_t>(rank)];
    BackendContext context = job.context(rank, 2);
    context.cipher = backends::fastest_cipher();
    communicator = backends::make_socket_communicator(context);
    std::vector<float> values(4, static_cast<float>(rank + 1));
    try {
      communicator->all_reduce(values.data(), values.size(), base::DType::kF32,
                               backends::ReduceOp::kMax);
      EXPECT_EQ(values, std::vector<float>(4, 2.f));
      communicator->barrier();
    } catch (...) {
      communicator.reset();  // at once, so that the other rank sees its end
      throw;
    }
  });
}

TEST(EncryptedLinks, AChangedByteOfARecordEndsInOneLineThatNamesThePeer) {
  constexpr std::size_t kToListener = sizeof(backends::MeshHello) + backends::kMacBytes + 1,
                        kToConnector =
                            sizeof(backends::MeshChallenge) + sizeof(backends::MeshWelcome);
  constexpr std::size_t kRecord =
      sizeof(backends::ControlWord) + 4 * sizeof(float) + backends::RecordCipher::kOverheadBytes;
  for (const Way way : {Way::kToListener, Way::kToConnector}) {
    const std::size_t receiver = way == Way::kToListener ? 0 : 1;
    const std::string expected =
        "peer: rank " + std::to_string(11 - receiver) + " wrong data record 0";
    for (std::size_t at = 0; at < kRecord; ++at) {
      const auto errors =
          sums_over_relay({way, at + (way == Way::kToListener ? kToListener : kToConnector)});
      EXPECT_VALUES(errors[receiver], expected) << "byte " << at;
      EXPECT_NE(errors[1 - receiver], "");
    }
  }
}

// ---- Capture.

constexpr std::size_t kWindow = 16;
const std::string kTensorName = "layer3.0.downsample.conv.weight";

// Reads all packets of the loopback interface of a network namespace of its own.
class Capture {
 public:
  Capture() : socket_(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL))) {
    sockaddr_ll lo{};
    lo.sll_family = AF_PACKET;
    lo.sll_protocol = htons(ETH_P_ALL);
    lo.sll_ifindex = static_cast<int>(if_nametoindex("lo"));
    const int buffer = 64 << 20;
    setsockopt(socket_.fd(), SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer);
    works_ = bind(socket_.fd(), reinterpret_cast<sockaddr*>(&lo), sizeof lo) == 0;
    thread_ = std::thread([this] { run(); });
  }
  ~Capture() {
    if (thread_.joinable()) (void)packets();
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  bool works() const { return works_; }
  // Ends the capture.
  const std::vector<std::string>& packets() {
    stopping_ = true;
    thread_.join();
    return packets_;
  }

 private:
  void run() {
    std::string packet(1 << 17, '\0');
    for (;;) {
      pollfd p{socket_.fd(), POLLIN, 0};
      if (poll(&p, 1, 50) <= 0) {
        if (stopping_) return;  // nothing is left to be read
        continue;
      }
      const ssize_t n = recv(socket_.fd(), packet.data(), packet.size(), MSG_DONTWAIT);
      if (n > 0) packets_.push_back(packet.substr(0, static_cast<std::size_t>(n)));
    }
  }
  backends::Socket socket_;
  bool works_ = false;
  std::atomic<bool> stopping_{false};
  std::vector<std::string> packets_;
  std::thread thread_;
};

// Makes a namespace for this process; returns false where that is not permitted.
bool enter_own_network() {
  if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  const backends::Socket any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  return ioctl(any.fd(), SIOCSIFFLAGS, &request) == 0;
}

// Two different windows have one key with a probability of 2^-64.
std::uint64_t window_key(const char* window) {
  std::uint64_t halves[2];
  std::memcpy(halves, window, kWindow);
  return halves[0] ^ (halves[1] * 0x9e3779b97f4a7c15);
}

using Windows = std::unordered_set<std::uint64_t>;

void add_windows(Windows& windows, const std::string& text, std::size_t step) {
  for (std::size_t at = 0; at + kWindow <= text.size(); at += step)
    windows.insert(window_key(text.data() + at));
}

// The number of windows in the packets.
std::size_t occurrences(const Windows& windows, const std::vector<std::string>& packets) {
  std::size_t found = 0;
  for (const std::string& packet : packets) {
    for (std::size_t at = 0; at + kWindow <= packet.size(); ++at)
      found += windows.contains(window_key(packet.data() + at)) ? 1 : 0;
  }
  return found;
}

constexpr std::size_t kCaptured = 40'000;
enum Outcome { kNothingFound = 0, kAllFound = 40, kSomeFound, kNoCapture, kNoData };

// In a process of its own.
Outcome captured_job(const std::string& backend, Encryption encryption) {
  if (!enter_own_network()) return kNoCapture;
  Capture capture;
  if (!capture.works()) return kNoCapture;
  const std::vector<float> kept = results(backend, encryption, kCaptured, kTensorName);
  if (testing::Test::HasFailure()) return kNoData;
  Windows names, numbers;
  add_windows(names, kTensorName, 1);
  const auto add_numbers = [&](const std::vector<float>& values) {
    add_windows(numbers,
                {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)},
                sizeof(float));
  };
  for (const int rank : {0, 1}) add_numbers(rank_values(rank, kCaptured));
  add_numbers(kept);  // sums
  const std::vector<std::string>& packets = capture.packets();
  std::size_t bytes = 0;
  for (const std::string& packet : packets) bytes += packet.size();
  if (bytes < 4 * kCaptured * sizeof(float)) return kNoData;  // most of it was missed
  const std::size_t found_names = occurrences(names, packets),
                    found_numbers = occurrences(numbers, packets);
  if (found_names == 0 && found_numbers == 0) return kNothingFound;
  return found_names > 0 && found_numbers > kCaptured ? kAllFound : kSomeFound;
}

int outcome_in_child(const std::string& backend, Encryption encryption) {
  const pid_t child = fork();
  if (child == 0) _exit(captured_job(backend, encryption));
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(EncryptedLinks, APacketCaptureShowsNoNumbersAndNoNames) {
  for (const std::string& backend : encrypting_backends()) {
    const int plain = outcome_in_child(backend, Encryption::kOff);
    if (plain == kNoCapture) GTEST_SKIP() << "this user may not capture in a namespace of its own";
    EXPECT_EQ(plain, kAllFound) << backend << ": a capture that finds nothing proves nothing";
    EXPECT_EQ(outcome_in_child(backend, Encryption::kOn), kNothingFound) << backend;
  }
}

}  // namespace
