// Probes: chains of multiply-adds in registers, enough of them to hide each one's latency, on every
// processor; and a plain copy. Bound: arithmetic, and bytes. No published method.
#include "engine/ops/device/ceiling_probes_cuda.h"
#include "engine/ops/device/device_code.h"
#include "engine/ops/device/tensor_core.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256, kChains = 8;

__global__ void fma_chains(int steps, float* sink) {
  float sums[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) sums[i] = static_cast<float>(threadIdx.x + i);
  const float factor = 0.9990234375f, step = static_cast<float>(blockIdx.x);
  for (int s = 0; s < steps; ++s) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) sums[i] = fmaf(sums[i], factor, step);
  }
  float total = 0;
#pragma unroll
  for (int i = 0; i < kChains; ++i) total += sums[i];
  if (total == -1) *sink = total;  // never, but the compiler cannot know
}

// Mode: 0 TF32, 1 bf16, 2 f16.
template <int Mode>
__global__ void matrix_chains(int steps, float* sink) {
  float sums[kChains][4] = {};
  const std::uint32_t one = Mode == 0 ? 0x3f800000u : Mode == 1 ? 0x3f803f80u : 0x3c003c00u;
  const std::uint32_t a[4] = {one, one, one, one}, b[2] = {one, one};
  for (int s = 0; s < steps; ++s) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) {
      if constexpr (Mode == 0) mma_m16n8k8_tf32(sums[i], a, b);
      if constexpr (Mode == 1) mma_m16n8k16_bf16(sums[i], a, b);
      if constexpr (Mode == 2) mma_m16n8k16_f16(sums[i], a, b);
    }
  }
  float total = 0;
#pragma unroll
  for (int i = 0; i < kChains; ++i) total += sums[i][0] + sums[i][3];
  if (total == -1) *sink = total;
}

__global__ void copy_packed(const Packed<float>* from, std::int64_t count, Packed<float>* to) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads)
    to[i] = from[i];
}

}  // namespace

double probe_multiply_adds(KernelContext& context, int steps, TensorView sink) {
  const int processors = engine::cuda::device_info(context.device.index).processors;
  const Grid grid{static_cast<unsigned>(8 * processors)};
  const auto start = [&](auto* kernel) {
    launch("probe_multiply_adds", kernel, grid, kThreads, 0, context.stream, steps,
           sink.as<float>());
  };
  const double threads = static_cast<double>(grid.x) * kThreads,
               chained = threads * kChains * steps;
  switch (context.products) {
    case Products::kF32:
      start(fma_chains);
      return 2 * chained;
    case Products::kTf32:
      start(matrix_chains<0>);
      return chained / kWarp * 2 * 16 * 8 * 8;
    case Products::kBF16:
      start(matrix_chains<1>);
      break;
    case Products::kF16:
      start(matrix_chains<2>);
      break;
  }
  return chained / kWarp * 2 * 16 * 8 * 16;
}

void probe_copy(KernelContext& context, TensorView from, TensorView to) {
  const std::int64_t count = static_cast<std::int64_t>(from.bytes() / sizeof(Packed<float>));
  if (count == 0) return;
  launch("probe_copy", copy_packed, {loop_blocks(count, kThreads)}, kThreads, 0, context.stream,
         static_cast<const Packed<float>*>(from.data), count, static_cast<Packed<float>*>(to.data));
}

}  // namespace engine::ops::cuda
