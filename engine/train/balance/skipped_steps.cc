// Sets the optimizer's count of updates from rank 0's.
#include "engine/train/balance/skipped_steps.h"

#include <string>

#include "engine/averaging/policies/policy_checkpoint.h"
#include "io/base/files/io_error.h"

namespace engine {

void SkippedSteps::restore(const io::Checkpoint& checkpoint, const std::string& source,
                           const std::function<void(const std::string&)>&) {
  if (checkpoint.world_size != ranks_) return;
  const auto skipped = [&](int rank) {
    const std::string name = "averaging.skipped_steps." + std::to_string(rank);
    const std::int64_t steps = find_counter(checkpoint.counters, name, 0);
    if (steps < 0 || steps > checkpoint.global_step)
      throw io::DataError(source + ": its counter " + name + " is " + std::to_string(steps) +
                          ", expected 0 to its " + std::to_string(checkpoint.global_step) +
                          " steps");
    return steps;
  };
  const std::int64_t updates = optimizer_.step_count() + skipped(0) - skipped(rank_);
  optimizer_.set_step_count(updates < 0 ? 0 : updates);
}

}  // namespace engine
