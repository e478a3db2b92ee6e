// Implements the stages as counters in the store, which answers at once whether a rank has set one.
#include "backends/compose/setup_stages.h"

#include <cstdint>
#include <exception>

#include "backends/store/protocol/handshake.h"
#include "backends/store/protocol/stall_detector.h"

namespace backends {
namespace {

constexpr std::size_t kMaxNamed = 4;

std::string key_of(int rank) { return "setup/" + std::to_string(rank); }

const char* stage_name(SetupStage stage) {
  switch (stage) {
    case SetupStage::kRendezvous:
      return "the end of the rendezvous";
    case SetupStage::kEncryption:
      return "the choice of encryption";
    case SetupStage::kConnecting:
    case SetupStage::kConnected:
      return "the set-up of connections";
  }
  return "";
}

}  // namespace

void SetupStages::enter(SetupStage stage) {
  if (stage <= stage_) return;
  const auto steps = static_cast<std::int64_t>(stage) - static_cast<std::int64_t>(stage_);
  stage_ = stage;
  store_.add(key_of(rank_), steps);
}

std::string SetupStages::awaited_text() const noexcept {
  try {
    std::string names;
    std::size_t count = 0;
    for (const PeerInfo& peer : peers_) {
      if (peer.rank == rank_ ||
          store_.add(key_of(peer.rank), 0) >= static_cast<std::int64_t>(stage_))
        continue;
      if (++count <= kMaxNamed)
        names += (count > 1 ? ", " : "") + member_text(peer.rank, peer.host, peer.pid);
    }
    if (count == 0) return "";
    if (count > kMaxNamed) names += " and " + std::to_string(count - kMaxNamed) + " more";
    return names + ", which " + (count > 1 ? "have" : "has") + " not reached " +
           stage_name(stage_) + " within " + stalled_time_text(time_.count()) + " (--rdzv-timeout)";
  } catch (const std::exception&) {
    return "";  // the store is lost as well
  }
}

}  // namespace backends
