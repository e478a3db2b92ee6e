// Counts the steps that each rank has not taken, with fewer local steps on slow ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/optim/optimizer.h"
#include "engine/train/saving/stateful.h"
#include "io/data/order/batch_shares.h"

namespace engine {

// An optimizer counts its own updates, of which slow ranks make fewer than rank 0, whose count is
// in the checkpoint. Every rank counts the steps that each rank has not taken.
class LocalSteps final : public Stateful {
 public:
  // `weights` are equal if the ranks' speeds are measured. `optimizer` is this rank's and must
  // outlive this.
  LocalSteps(int rank, int ranks, io::BatchShares weights, Optimizer& optimizer);

  const io::BatchShares& weights() const { return weights_; }
  void add_idle(int rank) { ++idle_[static_cast<std::size_t>(rank)]; }
  const std::vector<std::int64_t>& idle() const { return idle_; }

  // Stores counters "idle_steps.*". A checkpoint of another number of ranks, whose ranks all take
  // rank 0's state, makes them equal.
  void capture(StateCopy& copy) const override;
  void restore(const io::Checkpoint& checkpoint, const std::string& source,
               const std::function<void(const std::string&)>& notice) override;
  void forget_ranks_updates() override { idle_.assign(idle_.size(), 0); }

 private:
  const std::size_t rank_;
  const io::BatchShares weights_;
  Optimizer& optimizer_;
  std::vector<std::int64_t> idle_;  // of each rank
};

}  // namespace engine
