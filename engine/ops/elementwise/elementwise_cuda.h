// Elementwise kernels on a CUDA device. elementwise.h describes and elementwise.cc checks the
// operands, which have `count` elements; activation.h and multiply.h describe those of activations
// and products.
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

// One of the two must be f32.
void cast(KernelContext& context, TensorView from, std::int64_t count, TensorView to);

void fill(KernelContext& context, double value, TensorView view);
void increment(KernelContext& context, TensorView counter);

// `n` samples of `count` elements; an element is kept, times `factor`, if the upper 24 bits of its
// word reach `threshold`. N is the number type of the operands. The epoch is that of the context.
// `sample_ids` is in device memory.
template <class N>
struct DropoutDraw {
  std::uint64_t key;
  std::uint32_t threshold;
  N factor;
  std::int64_t n, count;
};
void dropout(KernelContext& context, const Dropout& o, const DropoutDraw<double>& draw);

// A function of activation.h: the number of its kind, and its own numbers.
struct ElementFunction {
  int kind;
  double first, second;
};
void activation_forward(KernelContext& context, TensorView x, const ElementFunction& f,
                        TensorView y);
void activation_backward(KernelContext& context, TensorView value, TensorView dy,
                         const ElementFunction& f, TensorView dx, Write write);

// An element of `narrow` belongs to one channel of `pixels` adjacent rows of `wide`; with one pixel
// both have one size. Writes wide * narrow, in the shape of `wide`, which may be `to`.
void multiply_channels(KernelContext& context, TensorView wide, TensorView narrow,
                       std::int64_t pixels, TensorView to, Write write);
// Writes the sum of a * b over the pixels, in the shape of `narrow`; both are wide.
void multiply_sums(KernelContext& context, TensorView a, TensorView b, std::int64_t pixels,
                   TensorView to, Write write);

// Writes the transpose of each of n samples, which are matrices [rows, columns].
void transpose_samples(KernelContext& context, TensorView from, std::int64_t n, std::int64_t rows,
                       std::int64_t columns, TensorView to, Write write);

}  // namespace engine::ops::cuda
