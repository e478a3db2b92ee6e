// Copies channels into a part of a wider tensor: y[.., before + i] = x[.., i]; the rest of y stays
// as it is. x [rows.., c], y [rows.., at least before + c]. Its gradient is
// pad_channels_backward(). Bound by bytes.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

struct CopyChannels {
  std::int64_t before;
  TensorView x, y;
};
void copy_channels(KernelContext& context, const CopyChannels& o);

}  // namespace engine::ops
