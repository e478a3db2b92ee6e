// Two warpgroups compute 128 x 128 of C, 64 rows each, from a ring of three stages of 64 k in
// shared memory (two blocks per multiprocessor). cp.async copies the operands. It needs no tensor
// map and accepts any operand that the other products accept. It writes the swizzled layout that
// wgmma reads. A stage is multiplied while the next one is loaded and the previous one may still be
// read. HAS NOT RUN ON A DEVICE YET. Bound by flops. Source: PTX ISA (wgmma); NVIDIA, "Hopper
// Tuning Guide".
#include "engine/ops/gemm/gemm_wgmma.h"

#include <atomic>

#include "engine/ops/device/warpgroup_mma.h"

namespace engine::ops::cuda {
namespace {

using Tile = GemmTile128;
constexpr int kTile = 128, kThreads = Tile::kThreads, kStages = 3, kPitch = kTile + 8;
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

template <class Product, class Store>
__device__ __forceinline__ void multiply_block(const Product& product, const BlockPlace& at,
                                               const Store& store) {
  using S = typename Product::LoaderA::Storage;
  constexpr bool kByDepthA = Product::LoaderA::kByDepth, kByDepthB = Product::LoaderB::kByDepth;
  using TileA = SwizzledTile<S, kByDepthA, kTile>;
  using TileB = SwizzledTile<S, kByDepthB, kTile>;
  using Stage = typename WgmmaShared<S>::Stage;
  unsigned char* raw = block_shared<RawShared>().bytes;
  raw += (kAtom - shared_address(raw) % kAtom) % kAtom;
  auto* stages = reinterpret_cast<Stage*>(raw);
  auto* result = reinterpret_cast<float*>(raw);
  const auto warpgroup = static_cast<unsigned>(warp_index()) / 4;
  StageCopies<TileA, TileB, kThreads, Product> copies(product, at);
  WarpgroupSums<S, !kByDepthA, !kByDepthB> sums;
  const int count = at.depth < at.depth_end ? (at.depth_end - at.depth + 63) / 64 : 0;
  if (count > 0) copies.start(stages[0].a, stages[0].b);
  commit_copies();
  for (int s = 0; s < count; ++s) {
    wait_copies<0>();
    publish_to_wgmma();
    __syncthreads();  // stage s is complete for all threads, and no thread reads stage s - 2 any
                      // more
    const Stage& ready = stages[s % kStages];
    const unsigned address_a = shared_address(ready.a), address_b = shared_address(ready.b);
    sums.begin();
#pragma unroll
    for (unsigned step = 0; step < 4; ++step)
      sums.multiply(TileA::descriptor(address_a, warpgroup, step),
                    TileB::descriptor(address_b, 0, step));
    sums.commit();
    Stage& filled = stages[(s + 1) % kStages];
    if (s + 1 < count) copies.start(filled.a, filled.b);
    commit_copies();
    sums.template wait<1>();
  }
  sums.template wait<0>();
  __syncthreads();  // all have finished the last stage, after which no copy was started
  sums.put(result + warpgroup * 64 * kPitch, kPitch);
  __syncthreads();
  hand_over<Tile, kPitch>(result, product, at, store);
}

template <class Product>
__global__ void __launch_bounds__(kThreads, 2)
    gemm_wgmma(const Product product, const GemmCut cut) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDACC__)
  const BlockPlace at = place_of_block<Tile>(product, cut.split_depth);
  multiply_block(product, at, SplitStore<typename Product::Epilogue>(product, cut, at.split));
#else
  __trap();  // compiled without sm_90a, which the host cannot detect: fail rather than leave the
             // result unwritten
#endif
}

std::atomic<bool> allowed{false};
thread_local GemmCutWish wish_of_thread;
thread_local GemmPlan last_of_thread;

}  // namespace

void allow_warpgroup_products(bool on) {
  if (on && engine::cuda::device_info(engine::cuda::current_device()).major != 9)
    throw engine::cuda::CudaError("warpgroup products need a device of compute capability 9.0");
  allowed = on;
}

GemmPlan plan_on_device(const GemmShape& shape, const GemmKind& kind,
                        const GemmResidents& residents, std::int64_t max_splits) {
  last_of_thread = plan_gemm(shape, kind, {engine::cuda::processor_count(), residents}, max_splits,
                             wish_of_thread);
  return last_of_thread;
}

void wish_for_cut(const GemmCutWish& wish) {
  wish_of_thread = wish;
  last_of_thread = {};
}

GemmPlan last_cut() { return last_of_thread; }

GemmPlan plan_matrix_product(const GemmShape& shape, DType storage, Products products,
                             const GemmResidents& residents) {
  const GemmPlan plan = plan_on_device(shape, GemmKind(storage, products), residents);
  if (allowed && size_of(storage) == 2 && plan.columns == kTile)
    last_of_thread = warpgroup_plan_of(shape.k, plan.splits);
  return last_of_thread;
}

template <class S, bool kByDepthA, bool kByDepthB, class T, bool kAligned>
void launch_wgmma(KernelContext& context, const GemmPlan& plan,
                  const MatrixProduct<S, kByDepthA, kByDepthB, T, kAligned>& product) {
  if (product.m == 0 || product.n == 0) return;
  const GemmCut cut = gemm_cut(context, plan, product);
  const Grid grid{static_cast<unsigned>(gemm_tiles(product.m, product.n, plan)), 1,
                  static_cast<unsigned>(plan.splits)};
  launch(product.name, gemm_wgmma<MatrixProduct<S, kByDepthA, kByDepthB, T, kAligned>>, grid,
         kThreads, sizeof(RawShared), context.stream, product, cut);
  launch_sum_parts(context, plan.splits, product, cut);
}

#define ENGINE_WGMMA(S, A, B, T)                                                        \
  template void launch_wgmma<S, A, B, T, true>(KernelContext&, const GemmPlan&,         \
                                               const MatrixProduct<S, A, B, T, true>&); \
  template void launch_wgmma<S, A, B, T, false>(KernelContext&, const GemmPlan&,        \
                                                const MatrixProduct<S, A, B, T, false>&)
ENGINE_WGMMA(bf16, true, true, bf16);
ENGINE_WGMMA(bf16, true, false, bf16);
ENGINE_WGMMA(bf16, false, false, float);
ENGINE_WGMMA(f16, true, true, f16);
ENGINE_WGMMA(f16, true, false, f16);
ENGINE_WGMMA(f16, false, false, float);
#undef ENGINE_WGMMA

}  // namespace engine::ops::cuda
