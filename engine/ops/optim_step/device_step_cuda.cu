// Loss gradients, the norm of gradients, and the decision on a step.
//
// The norm: 16 threads sum each block of 4096 gradients, one for each of sum_of_squares()'s sixteen
// interleaved sums, reading 64 contiguous bytes at a time; then one thread adds the blocks' sums in
// order, from shared memory. That is the CPU's order, so that both devices clip with the same bits
// (products of two f32 are exact in f64: a fused multiply-add changes nothing). Bound by bytes, 4
// per parameter. The last pass costs one dependent f64 addition per 4096 parameters.
#include <cmath>
#include <cstdint>

#include "engine/ops/device/device_code.h"
#include "engine/ops/optim_step/device_step_cuda.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSumBlock = 4096, kSumLanes = 16;  // as in optimizer_step_reference.h
constexpr int kBlocksAtOnce = kThreads / kSumLanes;
constexpr int kStretch = 2048;  // sums of blocks that fit in shared memory

__global__ void fill_rows(const StepNumbers* numbers, const StepControl* control,
                          std::int64_t count, float* dloss) {
  const float value = __fmul_rn(numbers->loss_gradient, control->loss_scale);
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads)
    dloss[i] = value;
}

// There is no loss scaling in float64.
__global__ void fill_rows_f64(const StepNumbers* numbers, std::int64_t count, double* dloss) {
  const double value = numbers->wide_loss_gradient;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads)
    dloss[i] = value;
}

template <class N>
__global__ void sum_blocks(const N* gradients, std::int64_t count, const StepNumbers* numbers,
                           bool scaling, double* sums) {
  if (!scaling && !(numbers->max_norm > 0)) return;  // the same for all threads
  const int lane = static_cast<int>(threadIdx.x) % kSumLanes;
  const std::int64_t block = std::int64_t{blockIdx.x} * kBlocksAtOnce + threadIdx.x / kSumLanes;
  const std::int64_t first = block * kSumBlock;
  const std::int64_t here = first >= count              ? 0
                            : count - first < kSumBlock ? count - first
                                                        : kSumBlock;
  double sum = 0;
  if (here == kSumBlock) {
#pragma unroll 16
    for (int i = 0; i < kSumBlock; i += kSumLanes) {
      const double value = gradients[first + i + lane];
      sum += value * value;
    }
  } else {
    for (std::int64_t i = lane; i < here; i += kSumLanes) {
      const double value = gradients[first + i];
      sum += value * value;
    }
  }
  for (int half = kSumLanes / 2; half > 0; half /= 2)
    sum += shuffle_xor(sum, half);  // lane 0: 0+8, then +4, +2, +1
  if (lane == 0 && here > 0) sums[block] = sum;
}

struct Stretch {
  double sums[kStretch];
};

__global__ void add_blocks(const double* sums, std::int64_t blocks, const StepNumbers* numbers,
                           bool scaling, StepControl* control) {
  Stretch& stretch = block_shared<Stretch>();
  const bool wanted = scaling || numbers->max_norm > 0;
  double total = 0;
  for (std::int64_t start = 0; wanted && start < blocks; start += kStretch) {
    const int here = static_cast<int>(blocks - start < kStretch ? blocks - start : kStretch);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < here; i += kThreads)
      stretch.sums[i] = sums[start + i];
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll 8
      for (int i = 0; i < here; ++i) total += stretch.sums[i];
    }
  }
  if (threadIdx.x != 0) return;
  control->squared_norm = total;
  // A sum of squares of finite f32 (of f64 below 1e154) is finite in f64, and any other sum is not.
  control->skip = scaling && !(total - total == 0) ? 1 : 0;
}

// Implements GradScaler's rule; settle_on_host() of engine/optim/loss_scale.h is its reference.
__global__ void settle(LossScaleRule rule, const StepNumbers* numbers, StepControl* control) {
  if (threadIdx.x != 0) return;
  StepControl c = *control;
  const bool scaling = rule.kind != LossScaleRule::Kind::kOff;
  if (!scaling) c.skip = 0;
  c.step_scale = c.loss_scale;
  const double scale = c.loss_scale;
  c.gradient_scale =
      static_cast<float>(clipped_by(numbers->max_norm, sqrt(c.squared_norm) / scale) / scale);
  if (c.skip != 0) {
    ++c.skipped_steps;
    ++c.skipped_in_a_row;
    c.good_steps = 0;
  } else {
    ++c.applied_steps;
    c.skipped_in_a_row = 0;
    if (scaling) ++c.good_steps;
  }
  if (rule.kind == LossScaleRule::Kind::kDynamic) {
    if (c.skip != 0) {
      c.loss_scale = fmaxf(__fmul_rn(c.loss_scale, rule.backoff), rule.lowest);
    } else if (c.good_steps >= rule.interval) {
      c.loss_scale = fminf(__fmul_rn(c.loss_scale, rule.growth), rule.highest);
      c.good_steps = 0;
    }
  } else {
    c.good_steps = 0;
  }
  *control = c;
}

__global__ void restore(const StepControl* control, const std::uint32_t* from, std::int64_t words,
                        std::uint32_t* to) {
  if (control->skip == 0) return;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < words;
       i += std::int64_t{gridDim.x} * kThreads)
    to[i] = from[i];
}

__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double product(double a, double b) { return a * b; }

template <class N>
__global__ void scale_all(N factor, std::int64_t count, const N* from, N* to) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads)
    to[i] = product(factor, from[i]);
}

template <class N>
__global__ void subtract_all(std::int64_t count, const N* a, const N* b, N* to) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads)
    to[i] = a[i] - b[i];
}

// Not contracted with the products.
__device__ __forceinline__ float total(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double total(double a, double b) { return __dadd_rn(a, b); }

template <class N>
__global__ void combine_all(N x, N y, std::int64_t count, const N* a, const N* b, N* to) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads)
    to[i] = total(product(x, a[i]), product(y, b[i]));
}

// Calls call(double{}) for f64, otherwise call(float{}).
template <class Call>
void with_state(DType dtype, Call call) {
  dtype == DType::kF64 ? call(double{}) : call(float{});
}

}  // namespace

std::size_t find_overflow_scratch_bytes(std::int64_t count) {
  return static_cast<std::size_t>(divide_up(count, kSumBlock)) * sizeof(double);
}

void fill_loss_gradient(KernelContext& context, const StepNumbers* numbers,
                        const StepControl* control, TensorView dloss_rows) {
  const std::int64_t count = dloss_rows.count();
  if (count == 0) return;
  if (dloss_rows.dtype == DType::kF64)
    return launch("fill_loss_gradient", fill_rows_f64, {loop_blocks(count, kThreads)}, kThreads, 0,
                  context.stream, numbers, count, dloss_rows.as<double>());
  launch("fill_loss_gradient", fill_rows, {loop_blocks(count, kThreads)}, kThreads, 0,
         context.stream, numbers, control, count, dloss_rows.as<float>());
}

void find_overflow(KernelContext& context, const LossScaleRule& rule, TensorView gradients,
                   const StepNumbers* numbers, StepControl* control) {
  const std::int64_t count = gradients.count(), blocks = divide_up(count, kSumBlock);
  auto* sums = reinterpret_cast<double*>(context.scratch.data());
  if (count > 0)
    with_state(gradients.dtype, [&]<class N>(N) {
      launch("find_overflow", sum_blocks<N>,
             {static_cast<unsigned>(divide_up(blocks, kBlocksAtOnce))}, kThreads, 0, context.stream,
             gradients.as<N>(), count, numbers, rule.on(), sums);
    });
  launch("find_overflow_total", add_blocks, {}, kThreads, sizeof(Stretch), context.stream, sums,
         blocks, numbers, rule.on(), control);
}

void settle_step(KernelContext& context, const LossScaleRule& rule, const StepNumbers* numbers,
                 StepControl* control) {
  launch("settle_step", settle, {}, kWarp, 0, context.stream, rule, numbers, control);
}

void restore_if_skipped(KernelContext& context, const StepControl* control, TensorView from,
                        TensorView to) {
  const auto words = static_cast<std::int64_t>(to.bytes() / sizeof(std::uint32_t));
  if (words == 0) return;
  launch("restore_if_skipped", restore, {loop_blocks(words, kThreads)}, kThreads, 0, context.stream,
         control, static_cast<const std::uint32_t*>(from.data), words,
         static_cast<std::uint32_t*>(to.data));
}

void scale_on_device(KernelContext& context, double factor, TensorView from, TensorView to) {
  const std::int64_t count = to.count();
  if (count == 0) return;
  with_state(to.dtype, [&]<class N>(N) {
    launch("scale", scale_all<N>, {loop_blocks(count, kThreads)}, kThreads, 0, context.stream,
           static_cast<N>(factor), count, from.as<N>(), to.as<N>());
  });
}

void subtract_on_device(KernelContext& context, TensorView a, TensorView b, TensorView to) {
  const std::int64_t count = to.count();
  if (count == 0) return;
  with_state(to.dtype, [&]<class N>(N) {
    launch("subtract", subtract_all<N>, {loop_blocks(count, kThreads)}, kThreads, 0, context.stream,
           count, a.as<N>(), b.as<N>(), to.as<N>());
  });
}

void combine_on_device(KernelContext& context, double x, TensorView a, double y, TensorView b,
                       TensorView to) {
  const std::int64_t count = to.count();
  if (count == 0) return;
  with_state(to.dtype, [&]<class N>(N) {
    launch("combine", combine_all<N>, {loop_blocks(count, kThreads)}, kThreads, 0, context.stream,
           static_cast<N>(x), static_cast<N>(y), count, a.as<N>(), b.as<N>(), to.as<N>());
  });
}

}  // namespace engine::ops::cuda
