// gelu in float32. Bound: arithmetic, about 25 instructions a vector.
#include "engine/ops/elementwise/gelu_cpu.h"

#include "engine/ops/common/flat_loops.h"
#include "engine/ops/common/simd_math.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

// (1 + tanh(u)) / 2 is sigmoid(2 u): 2 u = x (kLinear + kCubic x^2).
constexpr float kLinear = 1.5957691216057308f, kCubic = 0.07135481627159625f;

template <bool kTanh>
ENGINE_INLINE Floats value(Floats x) {
  if constexpr (kTanh)
    return x * sigmoid(x * (broadcast(kLinear) + broadcast(kCubic) * x * x)).value;
  return x * normal_distribution(x).below;
}

template <bool kTanh>
ENGINE_INLINE Floats slope(Floats x) {
  if constexpr (kTanh) {
    const Floats cubic = broadcast(kCubic) * x * x;
    const Sigmoid s = sigmoid(x * (broadcast(kLinear) + cubic));
    return s.value + x * s.value * s.complement * (broadcast(kLinear) + broadcast(3.f) * cubic);
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
