// Whole-buffer arithmetic of the averaging policies. All buffers have the same slots and dtype;
// gaps are zero and stay zero.
#pragma once

#include <cstring>

#include "backends/communicator.h"
#include "engine/core/parameter_buffer.h"
#include "engine/ops/common/kernel_context.h"

namespace engine {

// Calls call(T{}) with the element type of a floating-point buffer.
template <class Call>
auto with_element_type(DType dtype, Call call) {
  require(dtype == DType::kF32 || dtype == DType::kF64, "only f32 and f64 buffers are averaged");
  return dtype == DType::kF32 ? call(float{}) : call(double{});
}

inline void copy_flat(const FlatBuffer& from, const FlatBuffer& to) {
  require(from.bytes() == to.bytes(), "flat buffers of unequal size");
  if (from.bytes() > 0) std::memcpy(to.data(), from.data(), from.bytes());
}

// to = a - b, rows of equal length; `to` may be a or b.
inline void subtract_rows(KernelContext& context, const TensorView& a, const TensorView& b,
                          const TensorView& to) {
  require(a.count() == to.count() && b.count() == to.count(), "rows of unequal size");
  with_element_type(a.dtype, [&]<class T>(T) {
    const T *x = a.as<T>(), *y = b.as<T>();
    T* z = to.as<T>();
    if (x == nullptr || y == nullptr || z == nullptr) return;  // no elements
    context.threads->run(to.count(), [=](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) z[i] = x[i] - y[i];
    });
  });
}

// to = x * a + y * b, rows of equal length; `to` may be a or b.
inline void combine_rows(KernelContext& context, double x, const TensorView& a, double y,
                         const TensorView& b, const TensorView& to) {
  require(a.count() == to.count() && b.count() == to.count(), "rows of unequal size");
  with_element_type(a.dtype, [&]<class T>(T) {
    const T *p = a.as<T>(), *q = b.as<T>();
    T* z = to.as<T>();
    if (p == nullptr || q == nullptr || z == nullptr) return;  // no elements
    const T of_a = static_cast<T>(x), of_b = static_cast<T>(y);
    context.threads->run(to.count(), [=](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) z[i] = of_a * p[i] + of_b * q[i];
    });
  });
}

// to += weight * a, rows of equal length.
inline void add_rows(KernelContext& context, double weight, const TensorView& a,
                     const TensorView& to) {
  require(a.count() == to.count(), "rows of unequal size");
  with_element_type(a.dtype, [&]<class T>(T) {
    const T* x = a.as<T>();
    T* z = to.as<T>();
    if (x == nullptr || z == nullptr) return;  // no elements
    const T factor = static_cast<T>(weight);
    context.threads->run(to.count(), [=](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) z[i] += factor * x[i];
    });
  });
}

}  // namespace engine
