// Each thread processes 16 bytes of each operand at a time, or one element if an address is not
// aligned to 16 bytes. Bound by bytes; for 16-bit storage the error function takes almost as long.
#include "engine/ops/elementwise/gelu_cuda.h"

#include "engine/ops/device/device_code.h"
#include "engine/ops/device/float_access.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;
template <class N>
struct Constants {
  static constexpr N kHalf = N(0.5), kScale = N(0.79788456080286535588),  // sqrt(2 / pi)
      kCubic = N(0.044715), kHalfRoot = N(0.70710678118654752440),
                     kDensity = N(0.39894228040143267794);
  // Beyond it tanh is 1 and its slope 0; squares of larger numbers could overflow.
  static constexpr N kFlat = sizeof(N) > 4 ? 40 : 16;
};

// The normal distribution's function, in float64 without cancellation.
__device__ __forceinline__ float below(float x) {
  return Constants<float>::kHalf * (1 + erf(x * Constants<float>::kHalfRoot));
}
__device__ __forceinline__ double below(double x) {
  return Constants<double>::kHalf * erfc(-x * Constants<double>::kHalfRoot);
}

template <bool kTanh, class N>
__device__ __forceinline__ N value(N x) {
  using C = Constants<N>;
  if constexpr (kTanh) return C::kHalf * x * (1 + tanh(C::kScale * (x + C::kCubic * x * x * x)));
  if constexpr (sizeof(N) > 4) return x * below(x);
  return C::kHalf * x * (1 + erf(x * C::kHalfRoot));
}

template <bool kTanh, class N>
__device__ __forceinline__ N slope(N x) {
  using C = Constants<N>;
  x = x > C::kFlat ? C::kFlat : x < -C::kFlat ? -C::kFlat : x;
  if constexpr (kTanh) {
    const N t = tanh(C::kScale * (x + C::kCubic * x * x * x));
    return C::kHalf * (1 + t) +
           C::kHalf * x * (1 - t * t) * C::kScale * (1 + 3 * C::kCubic * x * x);
  }
  return below(x) + x * C::kDensity * exp(-C::kHalf * x * x);
}

// Calls body(first element, std::integral_constant<int, element count>) for all elements, kVector
// at a time.
template <int kVector, class Body>
__device__ __forceinline__ void for_each_group(std::int64_t count, Body body) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads * kVector;
  std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVector;
  for (; i + kVector <= count; i += step) body(i, std::integral_constant<int, kVector>{});
  for (; i < count; ++i)
    body(i, std::integral_constant<int, 1>{});  // at most one thread has a remainder
}

template <class T, bool kTanh, int kVector>
__global__ void __launch_bounds__(kThreads) forward(const T* x, std::int64_t count, T* y) {
  for_each_group<kVector>(count,
                          [&]<int kCount>(std::int64_t i, std::integral_constant<int, kCount>) {
                            Wide<T> v[kCount];
                            load_floats<kCount>(x + i, v);
#pragma unroll
                            for (int j = 0; j < kCount; ++j) v[j] = value<kTanh>(v[j]);
                            store_floats<kCount>(y + i, v);
                          });
}

template <class T, bool kTanh, int kVector>
__global__ void __launch_bounds__(kThreads)
    backward(const T* x, const T* dy, std::int64_t count, bool add, T* dx) {
  for_each_group<kVector>(count,
                          [&]<int kCount>(std::int64_t i, std::integral_constant<int, kCount>) {
                            Wide<T> v[kCount], d[kCount], before[kCount] = {};
                            load_floats<kCount>(x + i, v);
                            load_floats<kCount>(dy + i, d);
                            if (add) load_floats<kCount>(dx + i, before);
#pragma unroll
                            for (int j = 0; j < kCount; ++j)
                              d[j] = before[j] + d[j] * slope<kTanh>(v[j]);
                            store_floats<kCount>(dx + i, d);
                          });
}

// Calls start(std::bool_constant<tanh>, std::integral_constant<int, kVector>).
template <class T, class Start>
void with_kind(GeluKind kind, bool aligned, Start start) {
  const auto by_kind = [&](auto vector) {
    kind == GeluKind::kTanh ? start(std::true_type{}, vector) : start(std::false_type{}, vector);
  };
  if constexpr (!std::is_same_v<T, double>)
    if (aligned) return by_kind(std::integral_constant<int, Packed<T>::kCount>{});
  by_kind(std::integral_constant<int, 1>{});
}

}  // namespace

void gelu_forward(KernelContext& context, TensorView x, GeluKind kind, TensorView y) {
  const std::int64_t count = x.count();
  if (count == 0) return;
  with_any_storage(x.dtype, [&]<class T>(T) {
    with_kind<T>(kind, rows_are_aligned<T>(0, x.as<T>(), y.as<T>()),
                 [&]<bool kTanh, int kVector>(std::bool_constant<kTanh>,
                                              std::integral_constant<int, kVector>) {
                   launch("gelu_forward", forward<T, kTanh, kVector>,
                          {loop_blocks(divide_up(count, kVector), kThreads)}, kThreads, 0,
                          context.stream, x.as<T>(), count, y.as<T>());
                 });
  });
}

void gelu_backward(KernelContext& context, TensorView x, TensorView dy, GeluKind kind,
                   TensorView dx, Write write) {
  const std::int64_t count = x.count();
  if (count == 0) return;
  with_any_storage(x.dtype, [&]<class T>(T) {
    with_kind<T>(kind, rows_are_aligned<T>(0, x.as<T>(), dy.as<T>(), dx.as<T>()),
                 [&]<bool kTanh, int kVector>(std::bool_constant<kTanh>,
                                              std::integral_constant<int, kVector>) {
                   launch("gelu_backward", backward<T, kTanh, kVector>,
                          {loop_blocks(divide_up(count, kVector), kThreads)}, kThreads, 0,
                          context.stream, x.as<T>(), dy.as<T>(), count, write == Write::kAdd,
                          dx.as<T>());
                 });
  });
}

}  // namespace engine::ops::cuda
