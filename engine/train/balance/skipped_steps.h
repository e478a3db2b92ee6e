// Restores the count of updates of a rank that has skipped steps, with averagings that do not wait.
#pragma once

#include "engine/optim/optimizer.h"
#include "engine/train/saving/stateful.h"

namespace engine {

// The count in a checkpoint is that of rank 0's optimizer. The averaging policy's counters say how
// many steps each rank has skipped. A checkpoint of another number of ranks, whose ranks all take
// rank 0's state, makes the counts equal.
class SkippedSteps final : public Stateful {
 public:
  // `optimizer` is this rank's and must outlive this.
  SkippedSteps(int rank, int ranks, Optimizer& optimizer)
      : rank_(rank), ranks_(ranks), optimizer_(optimizer) {}

  void capture(StateCopy&) const override {}  // the policy does
  void restore(const io::Checkpoint& checkpoint, const std::string& source,
               const std::function<void(const std::string&)>& notice) override;

 private:
  const int rank_, ranks_;
  Optimizer& optimizer_;
};

}  // namespace engine
