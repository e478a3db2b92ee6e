// The operands of RMS normalization; rms_norm.h describes them.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// Normalizes parts of the rows of x instead, each alone: `count` adjacent parts of gamma's width
// from element `first` of each row on, such as the heads of queries and keys. inverse_rms then is
// [rows, count], and the other elements are neither read nor written.
struct RmsNormParts {
  std::int64_t first = 0, count = 0;  // count 0: whole rows
};

// Rows, the distance between them, and their parts.
struct RmsNormSizes {
  std::int64_t rows, stride, first, count, width;
};

struct RmsNormForward {
  TensorView x, gamma;
  double eps;
  TensorView y;              // may be x in inference
  TensorView inverse_rms{};  // stored for backward; absent in inference
  RmsNormParts parts{};
};

// With xhat = x * inverse_rms and g = dy * gamma:
//   dx = inverse_rms * (g - xhat * mean of (g * xhat)), the mean over the row;
//   dgamma = sum of dy * xhat over the rows. The bits do not depend on the number of threads.
struct RmsNormBackward {
  TensorView x, gamma, inverse_rms, dy, dgamma;
  Write parameter_write = Write::kOverwrite;
  TensorView dx{};  // absent if it is not needed; may be dy (with kOverwrite)
  Write dx_write = Write::kOverwrite;
  RmsNormParts parts{};
};

}  // namespace engine::ops
