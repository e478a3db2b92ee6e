// Identifies the average of the weights that a checkpoint contains.
#pragma once

#include "io/checkpoint/checkpoint.h"

namespace engine {

// The kind of average in a checkpoint's section `average`.
enum class AverageKind {
  kNone,
  kMoving,  // average of the parameters after each step (--ema)
  kEpochs,  // average of the parameters at the ends of the last epochs (--average-last)
};
AverageKind average_kind(const io::Checkpoint& checkpoint);

// The name of the counter of epochs in an average of kind kEpochs.
inline constexpr const char* kAveragedEpochs = "average.epochs";

}  // namespace engine
