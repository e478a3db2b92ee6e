// Elementwise kernels on a CUDA device; operands as in elementwise.h, checked there, of `count`
// elements.
#pragma once

#include "engine/ops/elementwise/elementwise.h"

namespace engine::ops::cuda {

void relu_forward(KernelContext& context, TensorView x, std::int64_t count, TensorView y);
void relu_backward(KernelContext& context, TensorView y, TensorView dy, std::int64_t count,
                   TensorView dx, Write write);
void add_forward(KernelContext& context, TensorView a, TensorView b, bool relu, std::int64_t count,
                 TensorView y);
void copy_or_add(KernelContext& context, TensorView from, std::int64_t count, TensorView to,
                 Write write);

// One of the two is f32.
void cast(KernelContext& context, TensorView from, std::int64_t count, TensorView to);

void fill(KernelContext& context, double value, TensorView view);
void increment(KernelContext& context, TensorView counter);

// `n` samples of `count` elements; an element is kept, times `factor`, when the upper 24 bits of
// its word reach `threshold`. The epoch is that of the context. `sample_ids`: device memory.
struct DropoutDraw {
  std::uint64_t key;
  std::uint32_t threshold;
  float factor;
  std::int64_t n, count;
};
void dropout(KernelContext& context, const Dropout& o, const DropoutDraw& draw);

// Each of n samples is a matrix [rows, columns]; its transpose is written.
void transpose_samples(KernelContext& context, TensorView from, std::int64_t n, std::int64_t rows,
                       std::int64_t columns, TensorView to, Write write);

}  // namespace engine::ops::cuda
