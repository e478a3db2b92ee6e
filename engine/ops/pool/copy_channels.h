// Copies channels into a part of another tensor: y[.., before + i] = x[.., from + i], for the
// channels of x from `from` on; the rest of y stays as it is. x [rows.., c], y [rows.., at least
// before + c - from]. The gradient, from 0 on, is pad_channels_backward(). Bound by bytes.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

struct CopyChannels {
  std::int64_t before;
  TensorView x, y;
  std::int64_t from = 0;
  Write write = Write::kOverwrite;
};
void copy_channels(KernelContext& context, const CopyChannels& o);

}  // namespace engine::ops
