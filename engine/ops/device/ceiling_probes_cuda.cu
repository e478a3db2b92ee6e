// Probes of the peak rates: chains of multiply-adds in registers on every multiprocessor, enough of
// them to hide the latency of each; and a plain copy. Bound by arithmetic, and by bytes. No
// published method.
#include "engine/ops/device/ceiling_probes_cuda.h"
#include "engine/ops/device/device_code.h"
#include "engine/ops/device/tensor_core.h"
#include "engine/ops/device/warpgroup_code_cuda.h"
#include "engine/ops/device/warpgroup_mma.h"
#include "io/gpu/compiled_code.h"

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
  if (total == -1) *sink = total;  // never happens, but the compiler cannot know
}

// Mode is 0 for TF32, 1 for bf16, 2 for f16.
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

// Two warpgroups per block, each with a chain of products of zeros in shared memory, with as many
// in flight as in the main loop (gemm_warpgroup.h).
struct WgmmaShared {
  unsigned char bytes[2 * 128 * 64 * 2 + 1024];
};
template <class S>
__global__ void __launch_bounds__(kThreads, 2) wgmma_chains(int steps, float* sink) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDACC__)
  using Operand = SwizzledTile<S, true, 128>;
  unsigned char* a = block_shared<WgmmaShared>().bytes;
  a += (1024 - shared_address(a) % 1024) % 1024;
  unsigned char* const b = a + Operand::kElements * sizeof(S);
  for (int i = static_cast<int>(threadIdx.x); i < Operand::kElements / 4; i += kThreads)
    reinterpret_cast<Packed<float>*>(a)[i] = {};
  publish_to_wgmma();
  __syncthreads();
  const unsigned address_a = shared_address(a), address_b = shared_address(b),
                 warpgroup = static_cast<unsigned>(warp_index()) / 4;
  WarpgroupSums<S, false, false> sums;
  for (int s = 0; s < steps; ++s) {
    sums.begin();
#pragma unroll
    for (unsigned step = 0; step < 4; ++step)
      sums.multiply(Operand::descriptor(address_a, warpgroup, step),
                    Operand::descriptor(address_b, 0, step));
    sums.commit();
    sums.template wait<1>();
  }
  sums.template wait<0>();
  // Never happens, but ptxas removes products whose sums are not used.
  if (const float total = sums.total(); total == -1) *sink = total;
#else
  __trap();  // never launched: see has_warpgroup_code()
#endif
}

__global__ void copy_packed(const Packed<float>* from, std::int64_t count, Packed<float>* to) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads)
    to[i] = from[i];
}

}  // namespace

MultiplyAddProbe probe_multiply_adds(KernelContext& context, int steps, int blocks,
                                     TensorView sink) {
  const Grid grid{static_cast<unsigned>(blocks)};
  const auto start = [&](auto* kernel) {
    launch("probe_multiply_adds", kernel, grid, kThreads, 0, context.stream, steps,
           sink.as<float>());
  };
  const auto start_wgmma = [&]<class S>(S, const char* instruction) -> MultiplyAddProbe {
    launch("probe_multiply_adds", wgmma_chains<S>, grid, kThreads, sizeof(WgmmaShared),
           context.stream, steps, sink.as<float>());
    return {2.0 * blocks * steps * 4 * 2 * 64 * 128 * 16, instruction};
  };
  const double threads = static_cast<double>(grid.x) * kThreads,
               chained = threads * kChains * steps, matrix = chained / kWarp * 2 * 16 * 8 * 16;
  const engine::cuda::DeviceInfo device = engine::cuda::device_info(engine::cuda::current_device());
  switch (device_has(context.products, device.major) ? context.products : Products::kF32) {
    case Products::kF32:
      start(fma_chains);
      return {2 * chained, "fma f32"};
    case Products::kTf32:
      start(matrix_chains<0>);
      return {matrix / 2, "mma.sync m16n8k8 tf32"};
    case Products::kBF16:
      if (has_warpgroup_code()) return start_wgmma(bf16{}, "wgmma m64n128k16 bf16");
      start(matrix_chains<1>);
      return {matrix, "mma.sync m16n8k16 bf16"};
    case Products::kF16:
      if (has_warpgroup_code()) return start_wgmma(f16{}, "wgmma m64n128k16 f16");
      start(matrix_chains<2>);
      return {matrix, device.major >= 8   ? "mma.sync m16n8k16 f16"
                      : device.minor >= 5 ? "mma.sync m16n8k8 f16"
                                          : "mma.sync m8n8k4 f16"};
  }
  return {};
}

void probe_copy(KernelContext& context, TensorView from, TensorView to) {
  const std::int64_t count = static_cast<std::int64_t>(from.bytes() / sizeof(Packed<float>));
  if (count == 0) return;
  launch("probe_copy", copy_packed, {loop_blocks(count, kThreads)}, kThreads, 0, context.stream,
         static_cast<const Packed<float>*>(from.data), count, static_cast<Packed<float>*>(to.data));
}

}  // namespace engine::ops::cuda
