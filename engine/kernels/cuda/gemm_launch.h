// Starts matrix products of the main loop (gemm_main_loop.h): the kernel around it, the second pass where k is split, and the
// choice of the tile. Included by .cu files only.
#pragma once

#include "engine/core/error.h"
#include "engine/kernels/cuda/gemm_main_loop.h"

namespace engine::kernels::cuda {

struct GemmExtent {
  int m, n, k, split_depth;
  float* parts;  // [splits, m, n rounded up to 8], or null: not split
};

// Sums of one part of k.
struct PartStore {
  float* part;
  std::int64_t pitch;

  __device__ __forceinline__ void operator()(int row, int column, const float (&values)[8], int) const {
    float* to = part + row * pitch + column;
    store_packed(to, {{values[0], values[1], values[2], values[3]}});
    store_packed(to + 4, {{values[4], values[5], values[6], values[7]}});
  }
};

template <Products kProducts, int kTile, class LoaderA, class LoaderB, class Epilogue>
__global__ void __launch_bounds__(GemmWarps<kTile>::kThreads, 2)
    gemm(LoaderA a, LoaderB b, GemmExtent extent, Epilogue epilogue) {
  using Block = GemmBlock<kProducts, kTile, LoaderA, LoaderB>;
  constexpr unsigned kGroup = 8;  // rows of tiles whose blocks are neighbours
  const auto down = static_cast<unsigned>((extent.m + kTile - 1) / kTile),
             across = static_cast<unsigned>((extent.n + kTile - 1) / kTile);
  const unsigned first = blockIdx.x / (kGroup * across) * kGroup, place = blockIdx.x % (kGroup * across);
  const unsigned high = down - first < kGroup ? down - first : kGroup;
  const int row = static_cast<int>(first + place % high) * kTile, column = static_cast<int>(place / high) * kTile;
  const int split = static_cast<int>(blockIdx.z), depth = split * extent.split_depth;
  if (extent.parts == nullptr) return Block::run(a, b, extent.m, extent.n, row, column, 0, extent.k, epilogue);
  const int rest = extent.k - depth;
  const std::int64_t pitch = (extent.n + 7) / 8 * 8;
  Block::run(a, b, extent.m, extent.n, row, column, depth, depth + (rest < extent.split_depth ? rest : extent.split_depth),
             PartStore{extent.parts + split * (extent.m * pitch), pitch});
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

template <Products kProducts, int kTile, class LoaderA, class LoaderB, class Epilogue>
void launch_gemm_tiles(KernelContext& context, const char* name, const GemmPlan& plan, const LoaderA& a, const LoaderB& b,
                       const GemmExtent& extent, const Epilogue& epilogue) {
  using Block = GemmBlock<kProducts, kTile, LoaderA, LoaderB>;
  const Grid grid{static_cast<unsigned>(gemm_tiles(extent.m, extent.n, kTile)), 1, static_cast<unsigned>(plan.splits)};
  launch(name, gemm<kProducts, kTile, LoaderA, LoaderB, Epilogue>, grid, Block::kThreads, sizeof(typename Block::Shared),
         context.stream, a, b, extent, epilogue);
  if (plan.splits == 1) return;
  const std::int64_t runs = extent.m * divide_up(extent.n, 8);
  launch(name, gemm_sum_parts<Epilogue>, {static_cast<unsigned>(divide_up(runs, 128))}, 128, 0, context.stream, extent,
         plan.splits, epilogue);
}

// Runs it as planned. Scratch: gemm_workspace_bytes(plan, m, n), at `scratch_offset` (a multiple of 16). k may be 0: C is zeros.
template <Products kProducts, class LoaderA, class LoaderB, class Epilogue>
void launch_gemm(KernelContext& context, const char* name, const GemmPlan& plan, const LoaderA& a, const LoaderB& b,
                 std::int64_t m, std::int64_t n, std::int64_t k, const Epilogue& epilogue, std::size_t scratch_offset = 0) {
  if (m == 0 || n == 0) return;
  constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 4096;  // lines and depths are int on the device
  require(m <= kMost && n <= kMost && k <= kMost && gemm_tiles(m, n, plan.tile) < kMost, "a matrix product beyond 2^31");
  const std::int64_t workspace = gemm_workspace_bytes(plan, m, n);
  require(context.scratch.size() >= scratch_offset + static_cast<std::size_t>(workspace), "scratch of a matrix product");
  const GemmExtent extent{static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), static_cast<int>(plan.split_depth),
                          workspace > 0 ? reinterpret_cast<float*>(context.scratch.data() + scratch_offset) : nullptr};
  if (plan.tile == 128) return launch_gemm_tiles<kProducts, 128>(context, name, plan, a, b, extent, epilogue);
  if (plan.tile == 64) return launch_gemm_tiles<kProducts, 64>(context, name, plan, a, b, extent, epilogue);
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

}  // namespace engine::kernels::cuda
