// Starts matrix products of the main loop (gemm_main_loop.h): the kernel around it, the second pass
// where k is split, and the choice of the tile. Included by .cu files only.
#pragma once

#include "engine/core/error.h"
#include "engine/ops/gemm/gemm_main_loop.h"

namespace engine::ops::cuda {

struct GemmExtent {
  int m, n, k, split_depth;
  float* parts;  // [splits, m, n rounded up to 8], or null: not split
};

// Sums of one part of k.
struct PartStore {
  float* part;
  std::int64_t pitch;

  __device__ __forceinline__ void operator()(int row, int column, const float (&values)[8],
                                             int) const {
    float* to = part + row * pitch + column;
    store_packed(to, {{values[0], values[1], values[2], values[3]}});
    store_packed(to + 4, {{values[4], values[5], values[6], values[7]}});
  }
};

// Which tile of C and which part of k a block has. Blocks are numbered in groups of 8 rows of
// tiles, column by column.
struct BlockPlace {
  int row, column, split, depth, depth_end;
};
template <int kTile>
__device__ __forceinline__ BlockPlace place_of_block(const GemmExtent& extent) {
  constexpr unsigned kGroup = 8;
  const auto down = static_cast<unsigned>((extent.m + kTile - 1) / kTile);
  const auto across = static_cast<unsigned>((extent.n + kTile - 1) / kTile);
  const unsigned first = blockIdx.x / (kGroup * across) * kGroup,
                 place = blockIdx.x % (kGroup * across);
  const unsigned high = down - first < kGroup ? down - first : kGroup;
  const int split = static_cast<int>(blockIdx.z), depth = split * extent.split_depth,
            rest = extent.k - depth;
  return {static_cast<int>(first + place % high) * kTile, static_cast<int>(place / high) * kTile,
          split, depth, depth + (rest < extent.split_depth ? rest : extent.split_depth)};
}

// run(epilogue) with the caller's, or with one that keeps the part's sums.
template <class Epilogue, class Run>
__device__ __forceinline__ void with_part_store(const GemmExtent& extent, int split,
                                                const Epilogue& epilogue, Run run) {
  if (extent.parts == nullptr) return run(epilogue);
  const std::int64_t pitch = (extent.n + 7) / 8 * 8;
  run(PartStore{extent.parts + split * (extent.m * pitch), pitch});
}

template <Products kProducts, int kTile, class LoaderA, class LoaderB, class Epilogue>
__global__ void __launch_bounds__(GemmWarps<kTile>::kThreads, 2)
    gemm(LoaderA a, LoaderB b, GemmExtent extent, Epilogue epilogue) {
  const BlockPlace at = place_of_block<kTile>(extent);
  with_part_store(extent, at.split, epilogue, [&](const auto& store) {
    GemmBlock<kProducts, kTile, LoaderA, LoaderB>::run(a, b, extent.m, extent.n, at.row, at.column,
                                                       at.depth, at.depth_end, store);
  });
}

// One thread a run of 8 columns: the parts in their order.
template <class Epilogue>
__global__ void gemm_sum_parts(GemmExtent extent, int splits, Epilogue epilogue) {
  const int runs = (extent.n + 7) / 8;
  const std::int64_t count = std::int64_t{extent.m} * runs;
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float sums[8] = {};
  for (int s = 0; s < splits; ++s) {
    const float* from = extent.parts + (s * count + i) * 8;
    const Packed<float> low = load_packed(from), high = load_packed(from + 4);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      sums[j] += low.at[j];
      sums[4 + j] += high.at[j];
    }
  }
  const int column = static_cast<int>(i % runs) * 8;
  epilogue(static_cast<int>(i / runs), column, sums, extent.n - column < 8 ? extent.n - column : 8);
}

template <class Epilogue>
void launch_sum_parts(KernelContext& context, const char* name, const GemmPlan& plan,
                      const GemmExtent& extent, const Epilogue& epilogue) {
  if (plan.splits == 1) return;
  const std::int64_t runs = extent.m * divide_up(extent.n, 8);
  launch(name, gemm_sum_parts<Epilogue>, {static_cast<unsigned>(divide_up(runs, 128))}, 128, 0,
         context.stream, extent, plan.splits, epilogue);
}

template <Products kProducts, int kTile, class LoaderA, class LoaderB, class Epilogue>
void launch_gemm_tiles(KernelContext& context, const char* name, const GemmPlan& plan,
                       const LoaderA& a, const LoaderB& b, const GemmExtent& extent,
                       const Epilogue& epilogue) {
  using Block = GemmBlock<kProducts, kTile, LoaderA, LoaderB>;
  const Grid grid{static_cast<unsigned>(gemm_tiles(extent.m, extent.n, kTile)), 1,
                  static_cast<unsigned>(plan.splits)};
  launch(name, gemm<kProducts, kTile, LoaderA, LoaderB, Epilogue>, grid, Block::kThreads,
         sizeof(typename Block::Shared), context.stream, a, b, extent, epilogue);
  launch_sum_parts(context, name, plan, extent, epilogue);
}

// Checks that the product fits the device and its workspace the scratch, from `scratch_offset` on
// (a multiple of 16).
inline GemmExtent gemm_extent(const KernelContext& context, const GemmPlan& plan, std::int64_t m,
                              std::int64_t n, std::int64_t k, std::size_t scratch_offset = 0) {
  constexpr std::int64_t kMost =
      (std::int64_t{1} << 31) - 4096;  // lines and depths are int on the device
  require(m <= kMost && n <= kMost && k <= kMost && gemm_tiles(m, n, plan.tile) < kMost,
          "a matrix product beyond 2^31");
  const std::int64_t workspace = gemm_workspace_bytes(plan, m, n);
  require(context.scratch.size() >= scratch_offset + static_cast<std::size_t>(workspace),
          "scratch of a matrix product");
  return {
      static_cast<int>(m), static_cast<int>(n), static_cast<int>(k),
      static_cast<int>(plan.split_depth),
      workspace > 0 ? reinterpret_cast<float*>(context.scratch.data() + scratch_offset) : nullptr};
}

// Runs it as planned. Scratch: gemm_workspace_bytes(plan, m, n). k may be 0: C is zeros then.
template <Products kProducts, class LoaderA, class LoaderB, class Epilogue>
void launch_gemm(KernelContext& context, const char* name, const GemmPlan& plan, const LoaderA& a,
                 const LoaderB& b, std::int64_t m, std::int64_t n, std::int64_t k,
                 const Epilogue& epilogue, std::size_t scratch_offset = 0) {
  if (m == 0 || n == 0) return;
  const GemmExtent extent = gemm_extent(context, plan, m, n, k, scratch_offset);
  if (plan.tile == 128)
    return launch_gemm_tiles<kProducts, 128>(context, name, plan, a, b, extent, epilogue);
  if (plan.tile == 64)
    return launch_gemm_tiles<kProducts, 64>(context, name, plan, a, b, extent, epilogue);
  launch_gemm_tiles<kProducts, 32>(context, name, plan, a, b, extent, epilogue);
}

// call(std::integral_constant<Products, P>{}) with what operands of this storage are multiplied as.
template <class Storage, class Call>
void with_products(Products wanted, Call call) {
  if constexpr (std::is_same_v<Storage, bf16>) {
    call(std::integral_constant<Products, Products::kBF16>{});
  } else if constexpr (std::is_same_v<Storage, f16>) {
    call(std::integral_constant<Products, Products::kF16>{});
  } else {
    if (wanted == Products::kF32) return call(std::integral_constant<Products, Products::kF32>{});
    if (wanted == Products::kTf32) return call(std::integral_constant<Products, Products::kTf32>{});
    if (wanted == Products::kF16) return call(std::integral_constant<Products, Products::kF16>{});
    call(std::integral_constant<Products, Products::kBF16>{});
  }
}

}  // namespace engine::ops::cuda
