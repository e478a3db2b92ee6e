// Checks that replicas are still equal: digests of every tensor are compared between the ranks
// every K steps during the run.
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
  std::int64_t every = 100;  // K, in global steps
  OnDesync action = OnDesync::kAbort;
  bool remember = true;           // also hashes the state between checks, to find the first bad
                                  // step
  bool equal_statistics = false;  // BatchNorm's running statistics are the same on all ranks in
                                  // every step (synchronized ones)
};

// Compares the state that must be equal: parameters; optimizer states if the policy keeps them
// equal; running statistics if they are synchronized, or right after they were averaged. A policy
// that lets replicas diverge is checked only right after it has synchronized them: a check that is
// due between two averagings waits for the next one.
//
// A check hashes every tensor (XXH3, 128 bits), gathers one digest of all these digests, and only
// if that differs the digests of the tensors. Between checks each rank keeps a digest of the whole
// state after every step, without exchanging it, so that the first bad step can be found later. If
// hashing would take more than 0.5 % of a step, it hashes only after every 2nd, 4th, ... step: then
// the first bad step is only known to be in a range.
class DesyncCheck {
 public:
  // Both must outlive the check. All ranks make the same calls in the same order. All memory is
  // allocated here.
  DesyncCheck(backends::Communicator& communicator, const TrainState& state,
              const DesyncOptions& options);

  // All three return the difference, valid until the next call, or null. With kRepair the differing
  // tensors are equal again on return: all ranks have the majority's (if there is none, rank 0's);
  // throws DesyncError if that failed. Collective.

  // Called before the first step.
  const DesyncReport* start();
  // Called after every step: compares if a check is due. `synchronized`: synchronize() was called
  // since the step.
  const DesyncReport* after_step(bool synchronized);
  // Called at the end, after synchronize(): compares unless the last step was compared.
  const DesyncReport* finish();

  // "compared 20 times, always equal (hashing took 0.1 % of the time)"
  std::string summary() const;

 private:
  struct Watched {
    std::string name;
    std::byte* data;
    std::size_t bytes;
    bool statistic;  // a running statistic that is equal only after an averaging
  };
  struct Past {  // digest of the whole state after a step
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
  std::vector<StateDigest> digests_, gathered_;  // digests of this rank's tensors; of all ranks'
  std::vector<StateDigest> whole_;               // one per rank
  std::vector<Past> past_;                       // since the last check, oldest first
  DesyncReport report_;
  const std::size_t max_past_;
  std::int64_t last_check_ = 0, checks_ = 0, bad_checks_ = 0;
  double hash_seconds_ = 1e9;  // the shortest so far
  double started_ = 0, last_call_ = 0, hashing_seconds_ = 0;
};

}  // namespace engine
