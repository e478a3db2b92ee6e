// An operand as a matrix: what operators over the last dimension see of it.
#pragma once

#include "engine/core/tensor_view.h"

namespace engine::ops {

struct RowSizes {
  std::int64_t rows, width;
};

// Those of [rows..., width]; no rows where the width is 0. REQUIRES: rank 1 or more.
inline RowSizes row_sizes(const TensorView& x) {
  const std::int64_t width = x.shape[x.shape.rank() - 1];
  return {width > 0 ? x.count() / width : 0, width};
}

}  // namespace engine::ops
