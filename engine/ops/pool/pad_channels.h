// Pads the channels with zeros: y[.., before + i] = x[.., i], 0 elsewhere. x [rows.., c], y
// [rows.., before + c + after]. Bound by bytes. Rows are copied whole, so that one source serves
// every instruction set.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

struct PadChannelsForward {
  std::int64_t before;
  TensorView x, y;
};
void pad_channels_forward(KernelContext& context, const PadChannelsForward& o);

// dx[.., i] = dy[.., before + i]
struct PadChannelsBackward {
  std::int64_t before;
  TensorView dy, dx;
  Write write = Write::kOverwrite;
};
void pad_channels_backward(KernelContext& context, const PadChannelsBackward& o);

}  // namespace engine::ops
