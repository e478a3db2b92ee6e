// Shuffles channels between groups, as a transposition of [groups, size] per row: y[.., i groups +
// g] = x[.., g size + i], with size = c / groups (Zhang, Zhou, Lin, Sun 2018, ShuffleNet,
// arXiv:1707.01083). The gradient is a shuffle with `size` groups. x and y [rows.., c]. Bound by
// bytes. Elements are copied, so that one source serves every instruction set.
#pragma once

#include "engine/ops/pool/shuffle_channels_operands.h"

namespace engine::ops {

void shuffle_channels(KernelContext& context, const ShuffleChannels& o);

}  // namespace engine::ops
