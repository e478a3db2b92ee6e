// Two warpgroups compute 128 x 128 of C, 64 rows each, from a ring of three stages of 64 k in
// shared memory (two blocks a processor). Copies by cp.async, which needs no tensor map and takes
// any operand that the other products take; they write the swizzled layout that wgmma reads. A
// stage is multiplied while the next is on its way and the one before may still be read. HAS NOT
// RUN ON A DEVICE YET. Bound: flops. Source: PTX ISA (wgmma); NVIDIA, "Hopper Tuning Guide".
#include "engine/ops/gemm/gemm_wgmma.h"

#include <atomic>

#include "engine/ops/device/warpgroup_mma.h"

namespace engine::ops::cuda {
namespace {

constexpr int kTile = 128, kThreads = 256, kStages = 3, kPitch = kTile + 8;
constexpr std::size_t kAtom = 1024;

template <class S>
struct WgmmaShared {
  struct Stage {
    S a[kTile * 64], b[kTile * 64];
  };
  static constexpr std::size_t kBytes = kStages * sizeof(Stage);
  static_assert(kBytes >= kTile * kPitch * sizeof(float));
};

struct RawShared {
  unsigned char bytes[kStages * kTile * 64 * 2 * 2 + kAtom];
};
static_assert(sizeof(RawShared) <= 99 * 1024);

template <class S, bool kByDepthA, bool kByDepthB, class Store>
__device__ __forceinline__ void multiply_block(const MatrixLoader<S, kByDepthA>& a,
                                               const MatrixLoader<S, kByDepthB>& b,
                                               const GemmExtent& extent, const BlockPlace& at,
                                               const Store& store) {
  using TileA = SwizzledTile<S, kByDepthA, kTile>;
  using TileB = SwizzledTile<S, kByDepthB, kTile>;
  using Stage = typename WgmmaShared<S>::Stage;
  unsigned char* raw = block_shared<RawShared>().bytes;
  raw += (kAtom - shared_address(raw) % kAtom) % kAtom;
  auto* stages = reinterpret_cast<Stage*>(raw);
  auto* result = reinterpret_cast<float*>(raw);
  const auto warpgroup = static_cast<unsigned>(warp_index()) / 4;
  StageCopies<TileA, TileB, kThreads, MatrixLoader<S, kByDepthA>, MatrixLoader<S, kByDepthB>>
      copies(a, b, at.row, at.column);
  WarpgroupSums<S, !kByDepthA, !kByDepthB> sums;
  const int count = at.depth < at.depth_end ? (at.depth_end - at.depth + 63) / 64 : 0;
  if (count > 0) copies.start(stages[0].a, stages[0].b, at.depth, at.depth_end);
  commit_copies();
  for (int s = 0; s < count; ++s) {
    wait_copies<0>();
    publish_to_wgmma();
    __syncthreads();  // stage s is there for all, and none reads stage s - 2 any more
    const Stage& ready = stages[s % kStages];
    const unsigned address_a = shared_address(ready.a), address_b = shared_address(ready.b);
    sums.begin();
#pragma unroll
    for (unsigned step = 0; step < 4; ++step)
      sums.multiply(TileA::descriptor(address_a, warpgroup, step),
                    TileB::descriptor(address_b, 0, step));
    sums.commit();
    Stage& filled = stages[(s + 1) % kStages];
    if (s + 1 < count) copies.start(filled.a, filled.b, at.depth + (s + 1) * 64, at.depth_end);
    commit_copies();
    sums.template wait<1>();
  }
  sums.template wait<0>();
  wait_copies<0>();
  __syncthreads();
  sums.put(result + warpgroup * 64 * kPitch, kPitch);
  __syncthreads();
  hand_over<kTile, kThreads, kPitch>(result, extent.m, extent.n, at.row, at.column, store);
}

template <class S, bool kByDepthA, bool kByDepthB, class T>
__global__ void __launch_bounds__(kThreads, 2)
    gemm_wgmma(MatrixLoader<S, kByDepthA> a, MatrixLoader<S, kByDepthB> b, GemmExtent extent,
               MatrixStore<T> store) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDACC__)
  const BlockPlace at = place_of_block<kTile>(extent);
  with_part_store(extent, at.split, store,
                  [&](const auto& to) { multiply_block(a, b, extent, at, to); });
#else
  __trap();  // compiled without sm_90a, which the host cannot see: an error, not a result that was
             // never written
#endif
}

std::atomic<bool> allowed{false};

}  // namespace

void allow_warpgroup_products(bool on) {
  if (on && engine::cuda::device_info(engine::cuda::current_device()).major != 9)
    throw engine::cuda::CudaError("warpgroup products need a device of compute capability 9.0");
  allowed = on;
}

GemmPlan plan_matrix_product(std::int64_t m, std::int64_t n, std::int64_t k,
                             std::size_t storage_bytes) {
  GemmPlan plan = plan_gemm(m, n, k, gemm_stage_depth(storage_bytes));
  return allowed && storage_bytes == 2 && plan.tile == kTile ? warpgroup_plan_of(k, plan.splits)
                                                             : plan;
}

template <class S, bool kByDepthA, bool kByDepthB, class T>
void launch_wgmma(KernelContext& context, const char* name, const GemmPlan& plan,
                  const MatrixLoader<S, kByDepthA>& a, const MatrixLoader<S, kByDepthB>& b,
                  const GemmExtent& extent, const MatrixStore<T>& store) {
  const Grid grid{static_cast<unsigned>(gemm_tiles(extent.m, extent.n, kTile)), 1,
                  static_cast<unsigned>(plan.splits)};
  launch(name, gemm_wgmma<S, kByDepthA, kByDepthB, T>, grid, kThreads, sizeof(RawShared),
         context.stream, a, b, extent, store);
  launch_sum_parts(context, name, plan, extent, store);
}

template <class S>
using ByDepth = MatrixLoader<S, true>;
template <class S>
using ByLine = MatrixLoader<S, false>;
#define ENGINE_WGMMA(S, A, B, T)                                                        \
  template void launch_wgmma(KernelContext&, const char*, const GemmPlan&, const A<S>&, \
                             const B<S>&, const GemmExtent&, const MatrixStore<T>&)
ENGINE_WGMMA(bf16, ByDepth, ByDepth, bf16);
ENGINE_WGMMA(bf16, ByDepth, ByLine, bf16);
ENGINE_WGMMA(bf16, ByLine, ByLine, float);
ENGINE_WGMMA(f16, ByDepth, ByDepth, f16);
ENGINE_WGMMA(f16, ByDepth, ByLine, f16);
ENGINE_WGMMA(f16, ByLine, ByLine, float);
#undef ENGINE_WGMMA

}  // namespace engine::ops::cuda
