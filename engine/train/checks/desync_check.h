// Whether replicas still are equal: digests of every tensor, compared between the ranks every K
// steps while the run goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/communicator.h"
#include "engine/train/checks/desync_report.h"
#include "engine/train/replicas/state_digest.h"
#include "engine/train/saving/train_state.h"

namespace engine {

struct DesyncOptions {
  std::int64_t every = 100;  // K global steps
  OnDesync action = OnDesync::kAbort;
  bool remember = true;           // hash the state between checks, too: to name the first bad step
  bool equal_statistics = false;  // BatchNorm's running statistics are the same on all ranks in
                                  // every step (synchronized ones)
};

// Compares what must be equal: parameters; optimizer states where the policy keeps them equal;
// running statistics where they are synchronized, or right after they were averaged. A policy that
// lets replicas drift is checked only right after it has brought them together: a check that falls
// due between two averagings waits for the next one.
//
// A check hashes every tensor (XXH3, 128 bits), gathers one digest of all these digests, and only
// where that differs the digests of the tensors. In between each rank keeps a digest of the whole
// state after every step, without exchanging it, so that the first bad step is known afterwards.
// Where hashing would take more than 0.5 % of a step it does so after every 2nd, 4th, ... step
// only: the first bad step is then known to lie in a range.
class DesyncCheck {
 public:
  // Both outlive the check. All ranks make the same calls in the same order. Allocates here only.
  DesyncCheck(backends::Communicator& communicator, const TrainState& state,
              const DesyncOptions& options);

  // All three return what differs, valid until the next call, or null. With kRepair the differing
  // tensors are equal again on return: all ranks have the majority's (where there is none, rank
  // 0's); DesyncError when that did not help. Collective.

  // Before the first step.
  const DesyncReport* start();
  // After every step: compares when it is time. `synchronized`: synchronize() has brought the
  // replicas together since the step.
  const DesyncReport* after_step(bool synchronized);
  // At the end, after synchronize(): compares unless the last step was compared.
  const DesyncReport* finish();

  // "compared 20 times, always equal (hashing took 0.1 % of the time)"
  std::string summary() const;

 private:
  struct Watched {
    std::string name;
    std::byte* data;
    std::size_t bytes;
    bool statistic;  // a running statistic that is equal after an averaging only
  };
  struct Past {  // the whole state after a step
    std::int64_t step;
    StateDigest digest;
  };

  bool averages_statistics(bool synchronized) const;
  bool compares(bool synchronized) const;
  StateDigest hash(bool statistics);
  void remember();
  const DesyncReport* compare(bool statistics);
  void describe(bool statistics);
  void find_first_bad();
  void repair(bool statistics);

  backends::Communicator& communicator_;
  const TrainState& state_;
  const DesyncOptions options_;
  std::vector<Watched> watched_;
  std::vector<StateDigest> digests_, gathered_;  // of this rank's tensors; of all ranks'
  std::vector<StateDigest> whole_;               // one for each rank
  std::vector<Past> past_;                       // since the last check, oldest first
  DesyncReport report_;
  const std::size_t max_past_;
  std::int64_t last_check_ = 0, checks_ = 0, bad_checks_ = 0;
  double hash_seconds_ = 1e9;  // the shortest so far
  double started_ = 0, last_call_ = 0, hashing_seconds_ = 0;
};

}  // namespace engine
