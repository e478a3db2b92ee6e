// Optimizer steps in float32: one pass over flat memory. Bound by bytes (SGD with momentum 20,
// AdamW 28 per parameter). Compiled without contraction to fused multiply-add, so that every
// instruction set rounds alike (see CMakeLists.txt).
#include "engine/ops/optim_step/optimizer_step_cpu.h"

#include "engine/ops/common/flat_loops.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

// PlainMath (update_math.h) for vectors.
struct VectorMath {
  using Scalar = float;
  using Value = Floats;
  ENGINE_INLINE static Floats root(Floats x) { return square_root(x); }
  ENGINE_INLINE static Floats sign(Floats x) {
    return select(x > zero(), broadcast(1.0f), select(x < zero(), broadcast(-1.0f), x));
  }
};

// An array that may have no elements, which C++ does not allow.
template <class T, int kCount>
struct Several {
  T at[kCount > 0 ? kCount : 1];
};

template <class Step>
void run(const typename Step::template Numbers<float>& numbers, const float* gradient,
         float* const* states, std::int64_t count, float* value, ThreadPool& threads) {
  const typename Step::template Numbers<float> k = numbers;
  Several<float*, Step::kStates> state{};
  for (int s = 0; s < Step::kStates; ++s) state.at[s] = states[s];
  run_flat(threads, count, [=](auto lanes, std::int64_t i) {
    Several<Floats, Step::kStates> here;
    for (int s = 0; s < Step::kStates; ++s) here.at[s] = lanes.load_from(state.at[s] + i);
    Floats w = lanes.load_from(value + i);
    Step::template update<VectorMath>(k, lanes.load_from(gradient + i), here.at, w);
    for (int s = 0; s < Step::kStates; ++s) lanes.store_to(state.at[s] + i, here.at[s]);
    lanes.store_to(value + i, w);
  });
}

template <class... Steps>
constexpr UpdateTable<StepList<Steps...>> table_of(StepList<Steps...>) {
  return {{run<Steps>}...};
}

}  // namespace

constexpr OptimizerStepTable optimizer_step_table = table_of(UpdateSteps{});

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
