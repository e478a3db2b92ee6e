// Views an operand as a matrix, for operators over the last dimension.
#pragma once

#include "engine/core/tensor_view.h"

namespace engine::ops {

struct RowSizes {
  std::int64_t rows, width;
};

// The sizes for [rows..., width]; there are no rows if the width is 0. REQUIRES: rank 1 or more.
inline RowSizes row_sizes(const TensorView& x) {
  const std::int64_t width = x.shape[x.shape.rank() - 1];
  return {width > 0 ? x.count() / width : 0, width};
}

}  // namespace engine::ops
