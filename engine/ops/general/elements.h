// The types of elements of the general operators on the CPU, and the type in which each computes.
#pragma once

#include "engine/core/dtype.h"
#include "io/base/numbers/half.h"

namespace engine::ops {

inline double computed(double value) { return value; }
inline float computed(float value) { return value; }
inline float computed(base::bf16 value) { return base::to_float(value); }

template <class T>
using Computed = decltype(computed(T{}));

template <class T>
T stored_as(Computed<T> value) {
  if constexpr (sizeof(T) == sizeof(Computed<T>))
    return value;
  else
    return base::from_float<T>(value);
}

// Calls call(float{}) or call(bf16{}), by the dtype of activations on the CPU other than f64.
template <class Call>
void with_cpu_storage(DType dtype, Call call) {
  dtype == DType::kBF16 ? call(base::bf16{}) : call(float{});
}

}  // namespace engine::ops
