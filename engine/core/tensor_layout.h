// Describes how one parameter is stored in memory and in files. Files follow PyTorch (convolution
// OIHW, dense OI); memory follows the kernels. Both hold the same elements: memory is the file's
// dimensions permuted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/core/shape.h"

namespace engine {

struct TensorLayout {
  Shape file_shape;  // as in PyTorch's state_dict
  std::array<int, Shape::kMaxRank> permutation{
      0, 1, 2, 3, 4, 5, 6, 7};  // memory dimension i is file dimension permutation[i]

  static TensorLayout plain(const Shape& shape) { return {.file_shape = shape}; }

  Shape memory_shape() const;
  // Copy all elements of `element_bytes` each. `file` and `memory` do not overlap.
  void to_memory(const void* file, void* memory, std::size_t element_bytes) const;
  // The same for `count` rows of the file's first dimension, starting at `first` (a tensor without
  // dimensions has one row): `file_rows` points to the first of these rows, `memory` to the tensor.
  void rows_to_memory(const void* file_rows, std::int64_t first, std::int64_t count, void* memory,
                      std::size_t element_bytes) const;
  void to_file(const void* memory, void* file, std::size_t element_bytes) const;
};

}  // namespace engine
