// Optimizer steps: one pass, 16 bytes at a time. Bound by bytes (SGD with momentum 20, AdamW 28 per
// parameter, and 2 for the half copy). The element functions are the CPU's (update_list.h), also
// compiled without contraction to fused multiply-adds, so that the bits equal the CPU's.
#include <type_traits>
#include <variant>

#include "engine/ops/device/device_code.h"
#include "engine/ops/optim_step/optimizer_step_cuda.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;
template <class N>
inline constexpr int kWide = Packed<N>::kCount;

template <class H>
struct alignas(sizeof(H) * kWide<float>) Halves {
  H at[kWide<float>];
};
struct NoHalf {};  // no copy is kept

// An array that may have no elements, which C++ does not allow.
template <class T, int kCount>
struct Several {
  T at[kCount > 0 ? kCount : 1];
};

// The operands of a step with kStates states, of numbers N.
template <int kStates, class H, class N>
struct Flat {
  std::int64_t count;
  bool vector;  // all pointers allow 16 bytes at once (the half copy 8)
  const N* gradient;
  Several<N*, kStates> states;
  N* value;
  H* half;
};

// Updates elements i to i + kWide<N>, 16 bytes of each operand.
template <class Step, class H, class N>
__device__ __forceinline__ void update_wide(const typename Step::template Numbers<N>& k,
                                            const Flat<Step::kStates, H, N>& o, std::int64_t i) {
  const Packed<N> g = load_packed(o.gradient + i);
  Packed<N> v = load_packed(o.value + i);
  Several<Packed<N>, Step::kStates> packed;
#pragma unroll
  for (int s = 0; s < Step::kStates; ++s) packed.at[s] = load_packed(o.states.at[s] + i);
#pragma unroll
  for (int e = 0; e < kWide<N>; ++e) {
    Several<N, Step::kStates> here;
#pragma unroll
    for (int s = 0; s < Step::kStates; ++s) here.at[s] = packed.at[s].at[e];
    Step::template update<PlainMath<N>>(k, g.at[e], here.at, v.at[e]);
#pragma unroll
    for (int s = 0; s < Step::kStates; ++s) packed.at[s].at[e] = here.at[s];
  }
#pragma unroll
  for (int s = 0; s < Step::kStates; ++s) store_packed(o.states.at[s] + i, packed.at[s]);
  store_packed(o.value + i, v);
  if constexpr (!std::is_same_v<H, NoHalf>) {
    Halves<H> h;
#pragma unroll
    for (int e = 0; e < kWide<N>; ++e) h.at[e] = from_float<H>(v.at[e]);
    *reinterpret_cast<Halves<H>*>(o.half + i) = h;
  }
}

// In float64 the factor of gradients is computed from the norm: the control has it as f32.
template <class N>
__device__ __forceinline__ double gradient_scale_of(const StepNumbers* numbers,
                                                    const StepControl* control) {
  if constexpr (std::is_same_v<N, double>)
    return numbers->wide_gradient_scale *
           clipped_by(numbers->max_norm, sqrt(control->squared_norm));
  else
    return control->gradient_scale;
}

template <class Step, class H, class N>
__global__ void update_all(Step step, const StepNumbers* numbers, const StepControl* control,
                           double rate, Flat<Step::kStates, H, N> o) {
  if (control->skip != 0) return;
  using Numbers = typename Step::template Numbers<N>;
  Numbers& shared = block_shared<Numbers>();
  if (threadIdx.x == 0) {  // AdamW's powers in float64 are too expensive for every thread
    step.set({numbers->lr * rate, gradient_scale_of<N>(numbers, control), control->applied_steps});
    shared = step.template numbers<N>();
  }
  __syncthreads();
  const Numbers k = shared;
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x,
                     all = std::int64_t{gridDim.x} * kThreads;
  const std::int64_t wide = o.vector ? o.count / kWide<N> : 0;
  for (std::int64_t w = thread; w < wide; w += all) update_wide<Step>(k, o, w * kWide<N>);
  for (std::int64_t i = wide * kWide<N> + thread; i < o.count; i += all) {
    Several<N, Step::kStates> here;
    for (int s = 0; s < Step::kStates; ++s) here.at[s] = o.states.at[s][i];
    Step::template update<PlainMath<N>>(k, o.gradient[i], here.at, o.value[i]);
    for (int s = 0; s < Step::kStates; ++s) o.states.at[s][i] = here.at[s];
    if constexpr (!std::is_same_v<H, NoHalf>) o.half[i] = from_float<H>(o.value[i]);
  }
}

template <class H>
__global__ void to_half(const float* values, std::int64_t count, bool vector, H* half) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x,
                     all = std::int64_t{gridDim.x} * kThreads;
  constexpr int kEach = kWide<float>;
  const std::int64_t wide = vector ? count / kEach : 0;
  for (std::int64_t w = thread; w < wide; w += all) {
    const Packed<float> v = load_packed(values + w * kEach);
    Halves<H> h;
#pragma unroll
    for (int k = 0; k < kEach; ++k) h.at[k] = from_float<H>(v.at[k]);
    *reinterpret_cast<Halves<H>*>(half + w * kEach) = h;
  }
  for (std::int64_t i = wide * kEach + thread; i < count; i += all)
    half[i] = from_float<H>(values[i]);
}

bool aligned(const TensorView& view) {
  return reinterpret_cast<std::uintptr_t>(view.data) % (is_half(view.dtype) ? 8 : 16) == 0;
}

// Calls call(H*) with the copy's type; NoHalf* if there is none.
template <class Call>
void with_half(const TensorView& half_copy, Call call) {
  if (!half_copy) return call(static_cast<NoHalf*>(nullptr));
  if (half_copy.dtype == DType::kBF16) return call(half_copy.as<bf16>());
  call(half_copy.as<f16>());
}

Grid grid_for(std::int64_t count) {
  return {loop_blocks(divide_up(count, kWide<float>), kThreads)};
}

// `vector`: see Flat.
template <class N, class H, class Step>
void launch_update(KernelContext& context, const DeviceUpdate& o, const Step& step, bool vector,
                   H* half) {
  Several<N*, Step::kStates> states{};
  for (int s = 0; s < Step::kStates; ++s)
    states.at[s] = o.states[static_cast<std::size_t>(s)].template as<N>();
  launch(Step::kName, update_all<Step, H, N>, grid_for(o.value.count()), kThreads,
         sizeof(typename Step::template Numbers<N>), context.stream, step, o.numbers, o.control,
         o.rate,
         Flat<Step::kStates, H, N>{o.value.count(), vector, o.gradient.as<N>(), states,
                                   o.value.as<N>(), half});
}

}  // namespace

void update_on_device(KernelContext& context, const DeviceUpdate& o) {
  if (o.value.count() == 0) return;
  bool vector = aligned(o.gradient) && aligned(o.value) && aligned(o.half_copy);
  for (const TensorView& state : o.states) vector = vector && aligned(state);
  std::visit(
      [&]<class Step>(const Step& step) {
        if (o.value.dtype == DType::kF64)
          return launch_update<double>(context, o, step, vector, static_cast<NoHalf*>(nullptr));
        with_half(o.half_copy,
                  [&]<class H>(H* half) { launch_update<float>(context, o, step, vector, half); });
      },
      o.step);
}

void copy_to_half(KernelContext& context, TensorView values, TensorView half_copy) {
  const std::int64_t count = values.count();
  if (count == 0) return;
  const bool vector = aligned(values) && aligned(half_copy);
  const auto call = [&]<class H>(H* half) {
    launch("copy_to_half", to_half<H>, grid_for(count), kThreads, 0, context.stream,
           values.as<float>(), count, vector, half);
  };
  half_copy.dtype == DType::kBF16 ? call(half_copy.as<bf16>()) : call(half_copy.as<f16>());
}

}  // namespace engine::ops::cuda
