// Sets the optimizer's count of updates from rank 0's.
#include "engine/train/balance/local_steps.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/averaging/policies/policy_checkpoint.h"
#include "io/base/files/io_error.h"

namespace engine {
namespace {

std::string counter_of(std::size_t rank) { return "idle_steps." + std::to_string(rank); }

}  // namespace

LocalSteps::LocalSteps(int rank, int ranks, io::BatchShares weights, Optimizer& optimizer)
    : rank_(static_cast<std::size_t>(rank)),
      weights_(std::move(weights)),
      optimizer_(optimizer),
      idle_(static_cast<std::size_t>(ranks), 0) {}

void LocalSteps::capture(StateCopy& copy) const {
  if (std::ranges::all_of(idle_, [](std::int64_t n) { return n == 0; })) return;
  for (std::size_t r = 0; r < idle_.size(); ++r)
    copy.checkpoint().counters.emplace_back(counter_of(r), idle_[r]);
}

void LocalSteps::restore(const io::Checkpoint& checkpoint, const std::string& source,
                         const std::function<void(const std::string&)>&) {
  std::ranges::fill(idle_, 0);
  if (checkpoint.world_size != std::ssize(idle_)) return;
  for (std::size_t r = 0; r < idle_.size(); ++r) {
    idle_[r] = find_counter(checkpoint.counters, counter_of(r), 0);
    if (idle_[r] < 0 || idle_[r] > checkpoint.global_step)
      throw io::DataError(source + ": its counter " + counter_of(r) + " is " +
                          std::to_string(idle_[r]) + ", expected 0 to its " +
                          std::to_string(checkpoint.global_step) + " steps");
  }
  optimizer_.set_step_count(
      std::max<std::int64_t>(0, optimizer_.step_count() + idle_.front() - idle_[rank_]));
}

}  // namespace engine
