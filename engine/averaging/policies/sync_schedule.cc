// Computes which steps of the phases are due.
#include "engine/averaging/policies/sync_schedule.h"

#include <algorithm>
#include <limits>

#include "engine/core/error.h"

namespace engine {

SyncSchedule::SyncSchedule(std::vector<SyncPhase> phases) : phases_(std::move(phases)) {
  require(!phases_.empty() && phases_.front().from >= 0,
          "a schedule needs a phase, from step 0 or later");
  for (std::size_t i = 0; i < phases_.size(); ++i) {
    require(phases_[i].every >= 1, "a phase averages every K >= 1 steps");
    require(i == 0 || phases_[i].from > phases_[i - 1].from, "phases ascend");
  }
}

SyncSchedule SyncSchedule::constant(std::int64_t every, std::int64_t warmup) {
  if (warmup <= 0) return SyncSchedule({{0, every}});
  return SyncSchedule({{0, 1}, {warmup, every}});
}

bool SyncSchedule::due(std::int64_t steps_done) const {
  return count(steps_done - 1, steps_done) > 0;
}

std::int64_t SyncSchedule::count(std::int64_t first, std::int64_t last) const {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < phases_.size(); ++i) {
    const auto [from, every] = phases_[i];
    const std::int64_t until =
        i + 1 < phases_.size() ? phases_[i + 1].from : std::numeric_limits<std::int64_t>::max();
    const std::int64_t begin = std::max(first, from), end = std::min(last, until);
    if (end > begin) total += (end - from) / every - (begin - from) / every;
  }
  return total;
}

}  // namespace engine
