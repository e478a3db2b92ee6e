// Convolution in float64 on a CUDA device, for any number of groups; layouts are those of conv2d.h.
#pragma once

#include <cstdint>

#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

// n images; `ins` and `outs` are the channels of one group.
struct ConvF64 {
  std::int64_t n, in_h, in_w, ins, kernel_h, kernel_w, stride, padding, out_h, out_w, outs, groups;

  std::int64_t taps() const { return kernel_h * kernel_w; }
};

// `bias` may be null.
void conv2d_forward_f64(KernelContext& context, const ConvF64& g, const double* x,
                        const double* weight, const double* bias, double* y);
void conv2d_backward_data_f64(KernelContext& context, const ConvF64& g, const double* dy,
                              const double* weight, double* dx, Write write);
void conv2d_backward_weights_f64(KernelContext& context, const ConvF64& g, const double* x,
                                 const double* dy, double* dweight, Write write);

}  // namespace engine::ops::cuda
