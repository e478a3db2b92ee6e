// Optimizer steps: one pass, 16 bytes at a time. Bound: bytes (SGD with momentum 20, AdamW 28 a
// parameter, and 2 for the half). Every operation rounds by itself, as on the CPU, whose source is
// compiled without contraction to fused multiply-adds.
#include <cmath>

#include "engine/ops/device/device_code.h"
#include "engine/ops/optim_step/optimizer_step_cuda.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWide = Packed<float>::kCount;

#if defined(__CUDACC__)
__device__ __forceinline__ float divided(float a, float b) { return __fdiv_rn(a, b); }
__device__ __forceinline__ float root(float a) { return __fsqrt_rn(a); }
__device__ __forceinline__ double product(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ double sum(double a, double b) { return __dadd_rn(a, b); }
#else
inline float divided(float a, float b) { return a / b; }
inline float root(float a) { return std::sqrt(a); }
inline double product(double a, double b) { return a * b; }
inline double sum(double a, double b) { return a + b; }
#endif
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float sum(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float difference(float a, float b) { return __fadd_rn(a, -b); }

template <class H>
struct alignas(sizeof(H) * kWide) Halves {
  H at[kWide];
};
struct NoHalf {};  // no copy is kept

// update(gradient, state..., value) for every element; the states and the value are replaced.
// `vector`: all pointers allow 16 bytes at once (the half copy 8).
template <class H, class Update, class... State>
__device__ __forceinline__ void update_all(std::int64_t count, bool vector, const float* gradient,
                                           float* value, H* half, Update update, State*... state) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x,
                     all = std::int64_t{gridDim.x} * kThreads;
  const std::int64_t wide = vector ? count / kWide : 0;
  for (std::int64_t w = thread; w < wide; w += all) {
    const std::int64_t i = w * kWide;
    const Packed<float> g = load_packed(gradient + i);
    Packed<float> v = load_packed(value + i);
    const auto with_states = [&](auto... s) {
#pragma unroll
      for (int k = 0; k < kWide; ++k) update(g.at[k], s.at[k]..., v.at[k]);
      (store_packed(state + i, s), ...);
    };
    with_states(load_packed(state + i)...);
    store_packed(value + i, v);
    if constexpr (!std::is_same_v<H, NoHalf>) {
      Halves<H> h;
#pragma unroll
      for (int k = 0; k < kWide; ++k) h.at[k] = from_float<H>(v.at[k]);
      *reinterpret_cast<Halves<H>*>(half + i) = h;
    }
  }
  for (std::int64_t i = wide * kWide + thread; i < count; i += all) {
    update(gradient[i], state[i]..., value[i]);
    if constexpr (!std::is_same_v<H, NoHalf>) half[i] = from_float<H>(value[i]);
  }
}

struct SgdConstants {
  float momentum, weight_decay;
  bool nesterov;
};

template <class H, bool kMomentum>
__global__ void sgd(SgdConstants k, const StepNumbers* numbers, const StepControl* control,
                    const float* gradient, float* velocity, std::int64_t count, bool vector,
                    float* value, H* half) {
  if (control->skip != 0) return;
  const float lr = static_cast<float>(numbers->lr), scale = control->gradient_scale;
  const bool first = control->applied_steps == 1;
  const auto scaled = [=](float g, float w) {
    g = product(g, scale);
    return k.weight_decay != 0 ? sum(g, product(k.weight_decay, w)) : g;
  };
  if constexpr (kMomentum) {
    update_all(
        count, vector, gradient, value, half,
        [=](float gradient_here, float& v, float& w) {
          float g = scaled(gradient_here, w);
          v = first ? g : sum(product(k.momentum, v), g);
          g = k.nesterov ? sum(g, product(k.momentum, v)) : v;
          w = difference(w, product(lr, g));
        },
        velocity);
  } else {
    update_all(count, vector, gradient, value, half,
               [=](float g, float& w) { w = difference(w, product(lr, scaled(g, w))); });
  }
}

// What is the same for all elements, by one thread.
__global__ void adamw_numbers(double beta1, double beta2, double weight_decay,
                              const StepNumbers* numbers, StepControl* control) {
  if (threadIdx.x != 0 || control->skip != 0) return;
  const auto count = static_cast<double>(control->applied_steps);
  const double bias1 = sum(1.0, -pow(beta1, count)), bias2 = sum(1.0, -pow(beta2, count));
  control->keep = static_cast<float>(sum(1.0, -product(numbers->lr, weight_decay)));
  control->step_size = static_cast<float>(numbers->lr / bias1);
  control->root_bias2 = static_cast<float>(sqrt(bias2));
}

struct AdamwConstants {
  float rest1, beta2, rest2, eps;
};

template <class H>
__global__ void adamw(AdamwConstants k, const StepControl* control, const float* gradient,
                      float* first_moment, float* second_moment, std::int64_t count, bool vector,
                      float* value, H* half) {
  if (control->skip != 0) return;
  const float scale = control->gradient_scale, keep = control->keep, step_size = control->step_size;
  const float root_bias2 = control->root_bias2;
  update_all(
      count, vector, gradient, value, half,
      [=](float gradient_here, float& m, float& v, float& w) {
        const float g = product(gradient_here, scale), away = difference(g, m);
        m = k.rest1 < 0.5f ? sum(m, product(k.rest1, away))
                           : difference(g, product(away, difference(1.0f, k.rest1)));
        v = sum(product(v, k.beta2), product(product(k.rest2, g), g));
        const float denominator = sum(divided(root(v), root_bias2), k.eps);
        w = difference(product(w, keep), divided(product(step_size, m), denominator));
      },
      first_moment, second_moment);
}

template <class H>
__global__ void to_half(const float* values, std::int64_t count, bool vector, H* half) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x,
                     all = std::int64_t{gridDim.x} * kThreads;
  const std::int64_t wide = vector ? count / kWide : 0;
  for (std::int64_t w = thread; w < wide; w += all) {
    const Packed<float> v = load_packed(values + w * kWide);
    Halves<H> h;
#pragma unroll
    for (int k = 0; k < kWide; ++k) h.at[k] = from_float<H>(v.at[k]);
    *reinterpret_cast<Halves<H>*>(half + w * kWide) = h;
  }
  for (std::int64_t i = wide * kWide + thread; i < count; i += all)
    half[i] = from_float<H>(values[i]);
}

bool aligned(const TensorView& view) {
  return reinterpret_cast<std::uintptr_t>(view.data) % (size_of(view.dtype) * kWide) == 0;
}

// call(H*) with the copy's type; NoHalf* where there is none.
template <class Call>
void with_half(const TensorView& half_copy, Call call) {
  if (!half_copy) return call(static_cast<NoHalf*>(nullptr));
  if (half_copy.dtype == DType::kBF16) return call(half_copy.as<bf16>());
  call(half_copy.as<f16>());
}

Grid grid_for(std::int64_t count) { return {loop_blocks(divide_up(count, kWide), kThreads)}; }

}  // namespace

void sgd_step(KernelContext& context, const SgdStep& step, const StepNumbers* numbers,
              const StepControl* control, TensorView gradient, TensorView velocity,
              TensorView value, TensorView half_copy) {
  const std::int64_t count = value.count();
  if (count == 0) return;
  const bool vector =
      aligned(gradient) && aligned(velocity) && aligned(value) && aligned(half_copy);
  const SgdConstants k{static_cast<float>(step.momentum), static_cast<float>(step.weight_decay),
                       step.nesterov};
  with_half(half_copy, [&]<class H>(H* half) {
    launch("sgd_step", velocity ? sgd<H, true> : sgd<H, false>, grid_for(count), kThreads, 0,
           context.stream, k, numbers, control, gradient.as<float>(), velocity.as<float>(), count,
           vector, value.as<float>(), half);
  });
}

void adamw_step(KernelContext& context, const AdamwStep& step, const StepNumbers* numbers,
                StepControl* control, TensorView gradient, TensorView first_moment,
                TensorView second_moment, TensorView value, TensorView half_copy) {
  const std::int64_t count = value.count();
  if (count == 0) return;
  launch("adamw_numbers", adamw_numbers, {}, kWarp, 0, context.stream, step.beta1, step.beta2,
         step.weight_decay, numbers, control);
  const bool vector = aligned(gradient) && aligned(first_moment) && aligned(second_moment) &&
                      aligned(value) && aligned(half_copy);
  const AdamwConstants k{static_cast<float>(1 - step.beta1), static_cast<float>(step.beta2),
                         static_cast<float>(1 - step.beta2), static_cast<float>(step.eps)};
  with_half(half_copy, [&]<class H>(H* half) {
    launch("adamw_step", adamw<H>, grid_for(count), kThreads, 0, context.stream, k, control,
           gradient.as<float>(), first_moment.as<float>(), second_moment.as<float>(), count, vector,
           value.as<float>(), half);
  });
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
