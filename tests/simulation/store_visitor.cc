// What visitors of a store say, and what they take in.
#include "tests/simulation/store_visitor.h"

#include "backends/store/protocol/seal.h"
#include "tests/simulation/simulated_rank.h"

namespace simulation {
namespace {

using backends::Frame;
using backends::FrameReader;
using backends::FrameType;
using backends::SessionMachine;

constexpr auto kLongestVisit = std::chrono::minutes(10);
constexpr auto kPatience = std::chrono::seconds(30);  // until the store is there
constexpr auto kPause = milliseconds(100);
// The beginning of a frame that is longer than those of strangers may be.
const std::string kNoise = std::string("\xD0\x07\x00\x00", 4) + std::string(60, '!');

}  // namespace

StoreVisitor::StoreVisitor(VirtualNetwork& network, VisitOptions options)
    : network_(network),
      options_(options),
      secret_{options.what == Visit::kOtherSecret ? std::string(32, 'o') : SimulatedRank::kSecret,
              "the simulation"},
      comes_at_(network.now() + options.comes_after) {}

backends::Hello StoreVisitor::hello() const {
  backends::Hello hello = SimulatedRank::hello_of(options_.rank, options_.world_size);
  hello.pid = options_.number;
  hello.host = kHost;
  hello.process = "a visitor";
  switch (options_.what) {
    case Visit::kObserver:
      hello.rank = backends::kObserverRank;
      break;
    case Visit::kOtherVersion:
      ++hello.version;
      break;
    case Visit::kOtherJob:
      hello.job = "another";
      break;
    case Visit::kRelayed:
      hello.port = SimulatedRank::kPort + 1;
      break;
    case Visit::kOtherWorld:
      ++hello.world_size;
      break;
    case Visit::kOtherBuild:
      hello.build = "another";
      break;
    case Visit::kNoRank:
      hello.rank = options_.world_size;
      break;
    default:
      break;
  }
  return hello;
}

std::string StoreVisitor::name() const {
  switch (options_.what) {
    case Visit::kObserver:
      return "an observer";
    case Visit::kNoise:
      return "a stranger that says what no store understands";
    case Visit::kSilence:
      return "a stranger that says nothing";
    case Visit::kOtherSecret:
      return "a rank with another secret";
    case Visit::kOtherVersion:
      return "a rank of another version";
    case Visit::kOtherJob:
      return "a rank of another job";
    case Visit::kRelayed:
      return "a rank through a relay";
    case Visit::kTwin:
      return "a second rank " + std::to_string(options_.rank);
    case Visit::kOtherWorld:
      return "a rank of a larger world";
    case Visit::kOtherBuild:
      return "a rank of another build";
    case Visit::kNoRank:
      return "a rank outside the world";
  }
  return "";
}

std::string StoreVisitor::expected_text() const {
  const std::string rank_0 = "rank 0 (host n0, pid 100)",
                    me = backends::member_text(hello().rank, kHost, options_.number);
  const std::string world = std::to_string(options_.world_size);
  switch (options_.what) {
    case Visit::kOtherSecret:
      return "a process that calls itself rank " + std::to_string(options_.rank) + " at process " +
             std::to_string(options_.number) + std::string(backends::kUnprovedText);
    case Visit::kOtherVersion:
      return "protocol version 10 on rank 0 and 11 at process " + std::to_string(options_.number);
    case Visit::kOtherJob:
      return "job id differs: \"simulation\" on " + rank_0 + ", \"another\" on " + me;
    case Visit::kRelayed:
      return me + " was relayed from port 29501 to port 29500 of " + rank_0;
    case Visit::kTwin:
      return "rank " + std::to_string(options_.rank) + " joined twice: rank " +
             std::to_string(options_.rank) + " (host n" + std::to_string(options_.rank);
    case Visit::kOtherWorld:
      return "world size differs: \"" + world + "\" on " + rank_0 + ", \"" +
             std::to_string(options_.world_size + 1) + "\" on " + me;
    case Visit::kOtherBuild:
      return "engine build differs: \"this one\" on " + rank_0 + ", \"another\" on " + me;
    case Visit::kNoRank:
      return "rank " + world + " is outside a world of " + world;
    default:
      return "";
  }
}

bool StoreVisitor::expects(backends::RefusalKind kind, bool started) const {
  using backends::RefusalKind;
  if (options_.what == Visit::kOtherJob || options_.what == Visit::kRelayed ||
      (options_.what == Visit::kTwin && started))
    return kind == RefusalKind::kOtherJob;
  return kind == RefusalKind::kMismatch;
}

Time StoreVisitor::wake_at() const {
  if (ended_at_ != Time{}) return Time::max();
  if (connected_at_ != Time{}) return connected_at_ + kLongestVisit;
  return std::max(comes_at_, network_.now() + kPause);
}

void StoreVisitor::run_once() {
  const Time now = network_.now();
  if (ended_at_ != Time{}) return network_.exit(options_.number);
  if (connected_at_ != Time{}) {
    if (now >= connected_at_ + kLongestVisit) leave();
    return;
  }
  if (now < comes_at_) return;
  store_ = network_.connect(options_.number, 0, Port::kStore);
  if (store_ == 0) {
    if (now >= comes_at_ + kPatience) leave();
    return;
  }
  connected_at_ = now;
  if (options_.what == Visit::kSilence) return;
  if (options_.what == Visit::kNoise) return network_.send(store_, kNoise);
  session_ = std::make_unique<SessionMachine>(secret_, hello(),
                                              std::string(backends::kNonceBytes, 'n'), "rank 0");
  network_.send(store_, session_->take_output());
}

void StoreVisitor::received(ConnectionId, const std::string& bytes) {
  if (!session_ || ended_at_ != Time{}) return;
  if (state_ == State::kWelcome) {
    session_->parser().append(bytes.data(), bytes.size());
    return observe();
  }
  session_->received(bytes);
  network_.send(store_, session_->take_output());
  state_ = session_->state();
  if (state_ == State::kRefused) refusal_ = session_->refusal();
  if (state_ == State::kWelcome && options_.what == Visit::kObserver) return observe();
  if (state_ != State::kRunning) leave();
}

void StoreVisitor::observe() {
  try {
    while (std::optional<Frame> frame =
               session_->parser().next(backends::kFrameBytes + backends::kSealBytes)) {
      session_->seals().to_client.open(*frame);
      FrameReader in(frame->payload);
      if (frame->type == FrameType::kProgress) {
        const std::vector<int> missing = backends::read_ranks(in);
        if (!missing_) missing_ = missing;
        knows_of_start_ = missing.empty();
      } else if (frame->type == FrameType::kStatus) {
        status_ = in.text();
      } else if (frame->type == FrameType::kLeft) {
        goodbye_ = "left";
      } else if (frame->type == FrameType::kFatal) {
        (void)in.u8();
        goodbye_ = in.text();
      } else {
        understands_ = false;
      }
    }
  } catch (const backends::MalformedFrame&) {
    understands_ = false;
  }
}

void StoreVisitor::closed(ConnectionId, const std::string&) { leave(); }

void StoreVisitor::leave() {
  if (ended_at_ != Time{}) return;
  ended_at_ = network_.now();
  if (store_ != 0) network_.close(store_);
}

}  // namespace simulation
