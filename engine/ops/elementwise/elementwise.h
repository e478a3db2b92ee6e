// Kernels that treat their operands as flat arrays of equal length, and the reordering of flatten.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

void relu_forward(KernelContext& context, TensorView x, TensorView y);  // y may be x
// dx = dy if y > 0, otherwise 0. y is the forward output. dx may be dy (with kOverwrite).
void relu_backward(KernelContext& context, TensorView y, TensorView dy, TensorView dx, Write write);

void add_forward(KernelContext& context, TensorView a, TensorView b, bool relu,
                 TensorView y);  // y may be a or b
void copy_or_add(KernelContext& context, TensorView from, TensorView to, Write write);

// Dropout (Srivastava et al., 2014), inverted: y = x * keep / (1 - rate). Element e of sample s is
// kept if the Philox word e % 4 of (key, high = epoch, low = s * ceil(count / 4) + e / 4) is at
// least rate: this does not depend on the batch, the rank or the threads. sample_ids [n] are the
// data set's ids; `x` is [n, ...]. On a CUDA device the ids are in device memory, and the epoch is
// read from the context; the member `epoch` is ignored.
// Backward is the same with dy in place of x and dx in place of y.
struct Dropout {
  TensorView from;
  double rate;
  std::uint64_t key, epoch;
  std::span<const std::int64_t> sample_ids;
  TensorView to;
  Write write = Write::kOverwrite;
};
void dropout(KernelContext& context, const Dropout& o);

// [n, h, w, c] <-> [n, c * h * w] in PyTorch's channel-first order.
void nhwc_to_channel_first(KernelContext& context, TensorView x, TensorView y,
                           Write write);  // y = reordered x
void channel_first_to_nhwc(KernelContext& context, TensorView x, TensorView y, Write write);

// Converts element by element: f32 -> dtype of `to` (f32, f64 or bf16), and bf16 -> f32. On a CUDA
// device f32 -> f32, bf16 or f16, and back.
void cast(KernelContext& context, TensorView from, TensorView to);

void zero(KernelContext& context, TensorView view);                // any dtype
void fill(KernelContext& context, double value, TensorView view);  // any floating-point dtype
void increment(KernelContext& context, TensorView counter);        // adds 1 to an i64

}  // namespace engine::ops
