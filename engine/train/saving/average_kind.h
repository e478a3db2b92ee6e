// Which average of the weights a snapshot holds.
#pragma once

#include "io/checkpoint/checkpoint.h"

namespace engine {

// Which average a snapshot's section `average` holds.
enum class AverageKind {
  kNone,
  kMoving,  // of the parameters after each step (--ema)
  kEpochs,  // of the parameters at the ends of the last epochs (--average-last)
};
AverageKind average_kind(const io::Checkpoint& checkpoint);

// The counter of the epochs in an average of kind kEpochs.
inline constexpr const char* kAveragedEpochs = "average.epochs";

}  // namespace engine
