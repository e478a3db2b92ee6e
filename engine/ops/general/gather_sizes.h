// Views the operands of gathering as [outer, entries, inner] and [outer, positions, inner].
#pragma once

#include "engine/core/tensor_view.h"

namespace engine::ops {

struct GatherSizes {
  std::int64_t outer = 1, entries, positions, inner = 1;
};

inline GatherSizes gather_sizes(int axis, const TensorView& x, const TensorView& y) {
  GatherSizes sizes{.entries = x.shape[axis], .positions = y.shape[axis]};
  for (int d = 0; d < axis; ++d) sizes.outer *= x.shape[d];
  for (int d = axis + 1; d < x.shape.rank(); ++d) sizes.inner *= x.shape[d];
  return sizes;
}

}  // namespace engine::ops
