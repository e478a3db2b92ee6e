// Factories of the layers for tensors of any rank. Shapes and axes are those of one sample; a
// negative axis counts from the end. Names and meanings are PyTorch's.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/layers/layer.h"

namespace engine::layers {

// The same numbers in another shape; one extent may be -1. It is always an alias.
LayerPtr reshape(std::vector<std::int64_t> shape);
// The dimensions in another order: dimension i of the output is dimension order[i] of the input.
LayerPtr permute(std::vector<std::int64_t> order);

struct SliceOptions {
  std::int64_t axis = -1, first = 0, count = 1, step = 1;
};
// The entries first, first + step, ... of an axis, `count` of them.
LayerPtr slice(const SliceOptions& options);

// The entries of an axis with these indices, also repeated ones (torch.index_select).
LayerPtr gather(std::int64_t axis, const std::vector<std::int64_t>& indices);

enum class ReduceFunction : std::uint8_t { kMean, kSum, kMax };
struct ReduceOptions {
  ReduceFunction function = ReduceFunction::kMean;
  std::vector<std::int64_t> axes;
  bool keep = false;  // the axes remain, with an extent of 1
};
// The mean, sum or maximum over some axes. The gradient of a maximum goes to the first one.
LayerPtr reduce(const ReduceOptions& options);

// Two inputs, expanded to a common shape as NumPy does; add() and multiply() of layers.h are alike.
LayerPtr subtract();
LayerPtr divide();
// 1 if the comparison holds, else 0. Its gradient is 0.
enum class CompareFunction : std::uint8_t { kGreater, kGreaterEqual, kLess, kLessEqual, kEqual };
LayerPtr compare(CompareFunction function);
// Three inputs, expanded likewise: the elements of the second one where the first one is not 0,
// else those of the third one (torch.where). The first one's gradient is 0.
LayerPtr where();

struct ParameterOptions {
  std::vector<std::int64_t> shape;
  double deviation = 0.02;  // standard deviation of normally distributed initial values
  double initial = 0;       // the initial value if the deviation is 0
};
// Tensors that read no input and are the same for every sample: the trained parameter `weight`, and
// the buffer `value`, which is not trained.
LayerPtr parameter(const ParameterOptions& options);
LayerPtr constant(const std::vector<std::int64_t>& shape, double initial = 0);

}  // namespace engine::layers
