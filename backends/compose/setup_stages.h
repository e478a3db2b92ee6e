// Records how far each rank has come in the set-up of a group, for messages about the ranks that
// others wait for.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "backends/backend_error.h"
#include "backends/group.h"
#include "backends/store.h"
#include "io/base/time/deadline.h"

namespace backends {

// The stages that each rank passes in this order.
enum class SetupStage { kRendezvous, kEncryption, kConnecting, kConnected };

class SetupStages {
 public:
  // `time`: the limit of the waits in each stage, for the message. The store outlives this.
  SetupStages(Store& store, const std::vector<PeerInfo>& peers, int rank,
              std::chrono::milliseconds time)
      : store_(store), peers_(peers), rank_(rank), time_(time) {}

  std::chrono::milliseconds time() const { return time_; }
  bool is_over() const { return stage_ == SetupStage::kConnected; }
  // Tells the others that this rank has come to a stage; no effect if it is further already.
  void enter(SetupStage stage);
  // Describes the ranks that have not come as far as this one: "rank 2 (host c, pid 7), which has
  // not reached the choice of encryption within 60.0 s (--rdzv-timeout)". "" if there are none, or
  // the store does not know.
  std::string awaited_text() const noexcept;

  // Calls wait(), and adds awaited_text() to its PeerError.
  template <typename Wait>
  auto run(SetupStage stage, const Wait& wait) -> decltype(wait()) {
    if (is_over()) return wait();
    enter(stage);
    const base::Deadline until = base::deadline_in(time_);
    try {
      return wait();
    } catch (const PeerError& error) {
      const std::string awaited = base::has_passed(until) ? awaited_text() : std::string();
      if (awaited.empty()) throw;
      throw PeerError(error.what() + ("; waiting for " + awaited));
    }
  }

 private:
  Store& store_;
  const std::vector<PeerInfo>& peers_;
  const int rank_;
  const std::chrono::milliseconds time_;
  SetupStage stage_ = SetupStage::kRendezvous;
};

}  // namespace backends
