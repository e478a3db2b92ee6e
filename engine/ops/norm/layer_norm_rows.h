// Assigns the rows of layer normalization to threads. For .cu files only.
#pragma once

#include <type_traits>

#include "engine/ops/device/device_code.h"
#include "engine/ops/device/float_access.h"

namespace engine::ops::cuda::layer_norm_rows {

inline constexpr int kThreads = 256, kWarps = kThreads / kWarp;

// The elements of a row that one of the row's kRowThreads threads holds: groups of kVector adjacent
// elements, kRowThreads * kVector apart.
template <int kRowThreads, int kVector>
__device__ __forceinline__ int column(int group) {
  return (group * kRowThreads + static_cast<int>(threadIdx.x) % kRowThreads) * kVector;
}

// Calls start(elements, vector) with std::integral_constants: the number of elements per lane (0:
// one block per row), and kVector, which is 1 for float64.
template <class T, class Start>
void with_row_kind(int width, bool aligned, Start start) {
  if constexpr (std::is_same_v<T, double>) {
    constexpr std::integral_constant<int, 1> kOne{};
    width <= 8 * kWarp ? start(std::integral_constant<int, 8>{}, kOne)
                       : start(std::integral_constant<int, 0>{}, kOne);
  } else {
    const auto by_width = [&]<int kVector>(std::integral_constant<int, kVector> vector) {
      if (width <= 8 * kWarp) return start(std::integral_constant<int, 8>{}, vector);
      if constexpr (kVector > 1) {
        if (width <= 16 * kWarp) return start(std::integral_constant<int, 16>{}, vector);
        if (width <= 32 * kWarp) return start(std::integral_constant<int, 32>{}, vector);
      }
      start(std::integral_constant<int, 0>{}, vector);
    };
    aligned ? by_width(std::integral_constant<int, Packed<T>::kCount>{})
            : by_width(std::integral_constant<int, 1>{});
  }
}

// The number of slices of rows with sums in scratch that has room for `slices` of floats.
template <class N>
constexpr std::int64_t slices_of(std::int64_t slices) {
  return slices * static_cast<std::int64_t>(sizeof(float)) / static_cast<std::int64_t>(sizeof(N));
}

inline Grid row_grid(int elements, std::int64_t rows) {
  return {static_cast<unsigned>(elements == 0 ? rows : divide_up(rows, kWarps))};
}

}  // namespace engine::ops::cuda::layer_norm_rows
