// Distinguishes the kinds of averages by their arrays and counters.
#include "engine/train/saving/average_kind.h"

#include <algorithm>

#include "engine/averaging/policies/policy_checkpoint.h"

namespace engine {

AverageKind average_kind(const io::Checkpoint& checkpoint) {
  const bool any = std::ranges::any_of(checkpoint.arrays, [](const io::NamedArray& array) {
    return array.section == io::Section::kAverage;
  });
  if (!any) return AverageKind::kNone;
  return find_counter(checkpoint.counters, kAveragedEpochs, 0) > 0 ? AverageKind::kEpochs
                                                                   : AverageKind::kMoving;
}

}  // namespace engine
