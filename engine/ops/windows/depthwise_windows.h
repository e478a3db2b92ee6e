// Depthwise convolutions of any window: each output channel reads one channel of x, which has as
// many groups as channels. Operands and results are those of window_conv2d.h, which selects these
// functions. Every sum is that of one thread, in an order that depends only on the shape. Bound by
// bytes, which caches serve for all but the first place of a window.
#pragma once

#include <cstddef>

#include "engine/ops/windows/window_operands.h"

namespace engine::ops {

inline bool is_depthwise(const WindowConv2d& conv) {
  return conv.groups > 1 && conv.groups == conv.window.channels;
}

// Returns the scratch size of each call. REQUIRES for these: is_depthwise(), checked operands.
std::size_t depthwise_windows_scratch_bytes(const WindowConv2d& conv, DType dtype,
                                            Device::Kind device);

void depthwise_windows_forward(KernelContext& context, const WindowConv2dForward& o);
void depthwise_windows_backward_data(KernelContext& context, const WindowConv2dBackwardData& o);
void depthwise_windows_backward_weights(KernelContext& context,
                                        const WindowConv2dBackwardWeights& o);

}  // namespace engine::ops
