// The block of a matrix product (gemm_main_loop.h) by the warpgroup instructions of sm_90a, for
// operands of 16 bits.
//
// Two warpgroups compute 128 x 128 or 128 x 64 of C, 64 rows each, from a ring of three stages of
// 64 k in shared memory (two or three blocks a processor). Copies by cp.async, which needs no
// tensor map and takes any operand that the other products take; they write the swizzled layout
// that wgmma reads. A stage is multiplied while the next is on its way and the one before may still
// be read. Bound: flops. Source: PTX ISA (wgmma); NVIDIA, "Hopper Tuning Guide".
#pragma once

#include "engine/ops/device/warpgroup_mma.h"
#include "engine/ops/gemm/gemm_main_loop.h"
#include "engine/ops/gemm/gemm_plan.h"

namespace engine::ops::cuda {

// The tiles of plans with `warpgroup`.
template <int kColumns, int kResident>
struct WarpgroupTile : GemmTile<128, kColumns, 4, 2, kResident> {};
using WarpgroupTile128 = WarpgroupTile<128, GemmTile128::kResident>;
using WarpgroupTile64 = WarpgroupTile<64, GemmTile128x64::kResident>;

template <Products kProducts, int kColumns, int kResident, class Product>
struct GemmBlock<kProducts, WarpgroupTile<kColumns, kResident>, Product> {
  using Tile = WarpgroupTile<kColumns, kResident>;
  using Storage = typename Product::LoaderA::Storage;
  static constexpr bool kByDepthA = Product::LoaderA::kByDepth,
                        kByDepthB = Product::LoaderB::kByDepth;
  using TileA = SwizzledTile<Storage, kByDepthA, Tile::kRows>;
  using TileB = SwizzledTile<Storage, kByDepthB, Tile::kColumns>;
  static constexpr int kStages = 3, kResultPitch = Tile::kColumns + 8;
  static constexpr std::size_t kAtom = 1024;
  struct Stage {
    Storage a[TileA::kElements], b[TileB::kElements];
  };
  struct Shared {
    unsigned char bytes[kStages * sizeof(Stage) + kAtom];  // from the first atom on
  };
  static_assert(kStages * sizeof(Stage) >= Tile::kRows * kResultPitch * sizeof(float));
  static_assert(sizeof(Shared) <= 99 * 1024);

  // `store` is an epilogue.
  template <class Store>
  static __device__ __forceinline__ void run(const Product& product, const BlockPlace& at,
                                             const Store& store) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDACC__)
    unsigned char* raw = block_shared<Shared>().bytes;
    raw += (kAtom - shared_address(raw) % kAtom) % kAtom;
    auto* stages = reinterpret_cast<Stage*>(raw);
    auto* result = reinterpret_cast<float*>(raw);
    const auto warpgroup = static_cast<unsigned>(warp_index()) / 4;
    StageCopies<TileA, TileB, Tile::kThreads, Product> copies(product, at);
    WarpgroupSums<Storage, !kByDepthA, !kByDepthB, kColumns> sums;
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
    sums.put(result + warpgroup * 64 * kResultPitch, kResultPitch);
    __syncthreads();
    hand_over<Tile, kResultPitch>(result, product, at, store);
#else
    __trap();  // compiled without sm_90a, which the host cannot detect: fail rather than leave the
               // result unwritten
#endif
  }
};

}  // namespace engine::ops::cuda
