// The type that kernels compute in: double for operands that are stored in float64, float for all
// others. Included by device_code.h.
#pragma once

#include <type_traits>

#include "engine/core/dtype.h"
#include "io/gpu/kernel_language.h"

namespace engine::ops::cuda {

// A struct, not std::conditional_t: compilers mangle an expression in a kernel's signature
// differently, and the emulator finds nvcc's code by name.
template <class T>
struct WideOf {
  using Type = float;
};
template <>
struct WideOf<double> {
  using Type = double;
};
template <class T>
using Wide = typename WideOf<T>::Type;

template <class T>
__device__ __forceinline__ Wide<T> to_wide(T value) {
  if constexpr (std::is_same_v<T, double>)
    return value;
  else
    return to_float(value);
}
template <class T>
__device__ __forceinline__ T from_wide(Wide<T> value) {
  if constexpr (std::is_same_v<T, double>)
    return value;
  else
    return from_float<T>(value);
}

}  // namespace engine::ops::cuda
