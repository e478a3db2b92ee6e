// GELU in float32. Bound by arithmetic, about 20 instructions per vector, one of them a division.
#include "engine/ops/elementwise/gelu_cpu.h"

#include "engine/ops/common/flat_loops.h"
#include "engine/ops/common/simd_math.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

// (1 + tanh(u)) / 2 is 1 / (1 + e^(-2 u)): e^(-2 u) = 2^(x (kLinear + kCubic x^2)).
constexpr double kTwiceSlope = 1.5957691216057308;  // twice the slope of u at 0: 2 sqrt(2 / pi)
constexpr double kLog2E = 1.4426950408889634;
constexpr float kLinear = static_cast<float>(-kTwiceSlope * kLog2E),
                kCubic = static_cast<float>(-0.044715 * kTwiceSlope * kLog2E),
                kSlopeLinear = static_cast<float>(kTwiceSlope),
                kSlopeCubic = static_cast<float>(3 * 0.044715 * kTwiceSlope);

// Limits x to a range within which exp2 is valid; beyond it, value and slope in f32 are x and 1, or
// 0 and 0.
ENGINE_INLINE Floats bounded(Floats x) { return min(broadcast(9.9f), max(broadcast(-9.9f), x)); }

ENGINE_INLINE Floats tanh_exponential(Floats x) {
  return exp2(x * (broadcast(kLinear) + broadcast(kCubic) * (x * x)));
}

template <bool kTanh>
ENGINE_INLINE Floats value(Floats x) {
  if constexpr (kTanh) return x / (broadcast(1.f) + tanh_exponential(bounded(x)));
  return x * normal_distribution(x).below;
}

// With s = 1 / (1 + e), the slope is s + x s (1 - s) 2 u', where 1 - s = e s.
template <bool kTanh>
ENGINE_INLINE Floats slope(Floats x) {
  if constexpr (kTanh) {
    x = bounded(x);
    const Floats e = tanh_exponential(x), s = broadcast(1.f) / (broadcast(1.f) + e);
    const Floats twice_slope = broadcast(kSlopeLinear) + broadcast(kSlopeCubic) * (x * x);
    return s + x * (e * s) * (s * twice_slope);
  }
  const NormalDistribution normal = normal_distribution(x);
  return normal.below + x * normal.density;
}

template <bool kTanh>
void forward_as(const float* x, std::int64_t count, float* y, ThreadPool& threads) {
  run_flat(threads, count, [=](auto lanes, std::int64_t i) {
    lanes.store_to(y + i, value<kTanh>(lanes.load_from(x + i)));
  });
}

void forward(const float* x, std::int64_t count, bool tanh, float* y, ThreadPool& threads) {
  (tanh ? forward_as<true> : forward_as<false>)(x, count, y, threads);
}

template <bool kTanh, bool kAdd>
void backward_as(const float* x, const float* dy, std::int64_t count, float* dx,
                 ThreadPool& threads) {
  run_flat(threads, count, [=](auto lanes, std::int64_t i) {
    put<kAdd>(lanes, dx + i, lanes.load_from(dy + i) * slope<kTanh>(lanes.load_from(x + i)));
  });
}

void backward(const float* x, const float* dy, std::int64_t count, bool tanh, float* dx, bool add,
              ThreadPool& threads) {
  const auto run = tanh ? (add ? backward_as<true, true> : backward_as<true, false>)
                        : (add ? backward_as<false, true> : backward_as<false, false>);
  run(x, dy, count, dx, threads);
}

}  // namespace

const GeluTable gelu_table{forward, backward};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
