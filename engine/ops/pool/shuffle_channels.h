// Shuffles channels between groups, as a transposition of [groups, size] per row: y[.., i groups +
// g] = x[.., g size + i], with size = c / groups (Zhang, Zhou, Lin, Sun 2018, ShuffleNet,
// arXiv:1707.01083). The gradient is a shuffle with `size` groups. x and y [rows.., c]. Bound by
// bytes. Nothing is computed, so that one source serves every instruction set.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

struct ShuffleChannels {
  std::int64_t groups;  // divides c
  TensorView x, y;
  Write write = Write::kOverwrite;
};
void shuffle_channels(KernelContext& context, const ShuffleChannels& o);

}  // namespace engine::ops
