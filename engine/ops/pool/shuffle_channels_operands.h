// The operands of channel shuffles; shuffle_channels.h describes them.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

struct ShuffleChannels {
  std::int64_t groups;  // divides c
  TensorView x, y;
  Write write = Write::kOverwrite;
};

}  // namespace engine::ops
