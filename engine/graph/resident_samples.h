// Describes the samples of a data set in device memory, from which batches are gathered.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"

namespace engine {

struct ResidentSamples {
  // [size, ...]: images as bytes, or numbers in f32. For text [tokens] in i32.
  TensorView samples;
  std::int64_t stride = 0;  // for text: distance of the windows; else 0

  bool is_text() const { return stride > 0; }
};

}  // namespace engine
