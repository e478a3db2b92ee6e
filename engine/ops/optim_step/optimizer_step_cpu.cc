// Optimizer steps in float32: one pass over flat memory. Bound: bytes (SGD with momentum 20, AdamW
// 28 a parameter). Compiled without contraction to fused multiply-add, so that every instruction
// set rounds alike (see CMakeLists.txt).
#include "engine/ops/optim_step/optimizer_step_cpu.h"

#include "engine/ops/common/flat_loops.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

enum class Velocity { kNone, kFirst, kPlain, kNesterov };

template <Velocity kVelocity, bool kDecay>
void sgd_as(const SgdNumbers& s, const float* gradient, float* velocity, std::int64_t count,
            float* value, ThreadPool& threads) {
  const bool nesterov = s.nesterov;
  const float lr = s.lr, momentum = s.momentum, decay = s.weight_decay,
              gradient_scale = s.gradient_scale;
  run_flat(threads, count, [=](auto lanes, std::int64_t i) {
    const Floats w = lanes.load_from(value + i);
    Floats g = lanes.load_from(gradient + i) * gradient_scale;
    if constexpr (kDecay) g += decay * w;
    if constexpr (kVelocity != Velocity::kNone) {
      Floats v = g;
      if constexpr (kVelocity != Velocity::kFirst) v = momentum * lanes.load_from(velocity + i) + g;
      lanes.store_to(velocity + i, v);
      if constexpr (kVelocity == Velocity::kNesterov) g += momentum * v;
      if constexpr (kVelocity == Velocity::kPlain) g = v;
      if constexpr (kVelocity == Velocity::kFirst) g = nesterov ? g + momentum * v : v;
    }
    lanes.store_to(value + i, w - lr * g);
  });
}

template <Velocity kVelocity>
ENGINE_INLINE auto sgd_for(const SgdNumbers& s) {
  return s.weight_decay != 0 ? sgd_as<kVelocity, true> : sgd_as<kVelocity, false>;
}

void sgd(const SgdNumbers& s, const float* gradient, float* velocity, std::int64_t count,
         float* value, ThreadPool& threads) {
  const auto run = velocity == nullptr ? sgd_for<Velocity::kNone>(s)
                   : s.first           ? sgd_for<Velocity::kFirst>(s)
                   : s.nesterov        ? sgd_for<Velocity::kNesterov>(s)
                                       : sgd_for<Velocity::kPlain>(s);
  run(s, gradient, velocity, count, value, threads);
}

void adamw(const AdamwNumbers& s, const float* gradient, float* first_moment, float* second_moment,
           std::int64_t count, float* value, ThreadPool& threads) {
  const AdamwNumbers k = s;
  const bool near = k.rest1 < 0.5f;
  run_flat(threads, count, [=](auto lanes, std::int64_t i) {
    const Floats g = lanes.load_from(gradient + i) * k.gradient_scale;
    const Floats old_m = lanes.load_from(first_moment + i), difference = g - old_m;
    const Floats m = near ? old_m + k.rest1 * difference : g - difference * (1 - k.rest1);
    const Floats v = lanes.load_from(second_moment + i) * k.beta2 + k.rest2 * g * g;
    lanes.store_to(first_moment + i, m);
    lanes.store_to(second_moment + i, v);
    const Floats denominator = square_root(v) / k.root_bias2 + k.eps;
    lanes.store_to(value + i, lanes.load_from(value + i) * k.keep - k.step_size * m / denominator);
  });
}

}  // namespace

const OptimizerStepTable optimizer_step_table{sgd, adamw};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
