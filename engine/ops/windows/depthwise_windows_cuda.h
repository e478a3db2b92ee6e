// Depthwise convolutions of any window on a CUDA device. depthwise_windows.h describes the
// operands. Bound by bytes.
#pragma once

#include "engine/ops/windows/window_operands.h"

namespace engine::ops::cuda {

void depthwise_windows_forward(KernelContext& context, const WindowConv2dForward& o);
void depthwise_windows_backward_data(KernelContext& context, const WindowConv2dBackwardData& o);
void depthwise_windows_backward_weights(KernelContext& context,
                                        const WindowConv2dBackwardWeights& o);

}  // namespace engine::ops::cuda
