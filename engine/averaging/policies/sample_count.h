// The samples since an averaging, and the weight that they give a rank.
#pragma once

#include <cstdint>

#include "engine/averaging/policies/averaging_policy.h"

namespace engine {

struct SampleCount {
  std::int64_t local = 0, global = 0;  // on this rank, over all ranks

  void add(const StepCounts& counts) {
    local += counts.local;
    global += counts.global;
  }
  // Returns this rank's weight in a mean over the ranks. Every sample counts once. If no rank has
  // seen a sample (the data set is smaller than the world), all ranks have the same weight.
  double weight(int world_size) const {
    return global == 0 ? 1.0 / world_size
                       : static_cast<double>(local) / static_cast<double>(global);
  }
};

}  // namespace engine
