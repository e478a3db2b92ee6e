// Starts matrix products of the main loop (gemm_main_loop.h): the kernel around it, the second pass
// if k is split, and the choice of the tile. Included by .cu files only.
#pragma once

#include "engine/core/error.h"
#include "engine/ops/gemm/gemm_main_loop.h"
#include "engine/ops/gemm/gemm_warpgroup.h"

namespace engine::ops::cuda {

// Up to kMost products of one launch, which share the plan and the grid.
template <class Product_, int kMost_ = 1>
struct GemmGroup {
  using Product = Product_;
  static constexpr int kMost = kMost_;
  Product products[kMost];
  int count = 1;
};

// The division of k into parts.
struct GemmCut {
  int split_depth;  // larger than any k: not split
  float* parts;     // [splits, m, n rounded up to 8], or null: not split
};

// The destination of a block's sums: the caller's epilogue, or a part of the workspace.
template <class Epilogue>
struct SplitStore {
  const Epilogue& epilogue;
  float* part;  // or null
  std::int64_t pitch;

  template <class Product>
  __device__ __forceinline__ SplitStore(const Product& product, const GemmCut& cut, int split)
      : epilogue(product.store), part(cut.parts), pitch((product.n + 7) / 8 * 8) {
    if (part != nullptr) part += split * (product.m * pitch);
  }
  __device__ __forceinline__ void operator()(int row, int column, const float (&values)[8],
                                             int count) const {
    if (part == nullptr) return epilogue(row, column, values, count);
    float* to = part + row * pitch + column;
    store_packed(to, {{values[0], values[1], values[2], values[3]}});
    store_packed(to + 4, {{values[4], values[5], values[6], values[7]}});
  }
};

// Blocks are numbered in groups of 8 rows of tiles, column by column.
template <class Tile, class Product>
__device__ __forceinline__ BlockPlace place_of_block(const Product& product, int split_depth) {
  constexpr unsigned kGroup = 8;
  const int m = static_cast<int>(product.m), n = static_cast<int>(product.n),
            k = static_cast<int>(product.k);
  const auto down = static_cast<unsigned>((m + Tile::kRows - 1) / Tile::kRows);
  const auto across = static_cast<unsigned>((n + Tile::kColumns - 1) / Tile::kColumns);
  const unsigned first = blockIdx.x / (kGroup * across) * kGroup,
                 place = blockIdx.x % (kGroup * across);
  const unsigned high = down - first < kGroup ? down - first : kGroup;
  const int split = static_cast<int>(blockIdx.z), depth = split * split_depth, rest = k - depth;
  return {static_cast<int>(first + place % high) * Tile::kRows,
          static_cast<int>(place / high) * Tile::kColumns, split, depth,
          depth + (rest < split_depth ? rest : split_depth)};
}

template <Products kProducts, class Tile, class Group>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kResident)
    gemm(const Group group, const GemmCut cut) {
  using Product = typename Group::Product;
  const Product& product = group.products[Group::kMost > 1 ? blockIdx.y : 0];
  if constexpr (Group::kMost > 1) {
    // The whole block returns: its product has fewer tiles than another one of the group.
    if (blockIdx.x >= divide_up(product.m, Tile::kRows) * divide_up(product.n, Tile::kColumns))
      return;
  }
  const BlockPlace at = place_of_block<Tile>(product, cut.split_depth);
  using Block = GemmBlock<kProducts, Tile, Product>;
  if constexpr (Group::kMost > 1)
    Block::run(product, at, product.store);
  else
    Block::run(product, at, SplitStore<typename Product::Epilogue>(product, cut, at.split));
}

// The number of blocks of each tile's kernel that a multiprocessor of the calling thread's device
// holds at once. The runtime is queried once per device and thread: a step runs once before it is
// captured.
template <Products kProducts, class Group>
const GemmResidents& residents_of() {
  thread_local int asked = -1;
  thread_local GemmResidents found{};
  if (const int device = engine::cuda::current_device(); device != asked) {
    const auto ask = []<class Tile>(Tile) {
      using Block = GemmBlock<kProducts, Tile, typename Group::Product>;
      void (*const kernel)(const Group, const GemmCut) = gemm<kProducts, Tile, Group>;
      const int held =
          engine::cuda::resident_blocks({reinterpret_cast<const void*>(kernel), "a matrix product",
                                         Tile::kThreads, sizeof(typename Block::Shared)});
      return std::min(held, Tile::kResident);
    };
    found = {ask(GemmTile128{}), ask(GemmTile128x64{}), ask(GemmTile64{}), ask(GemmTile32{})};
    asked = device;
  }
  return found;
}

// Each thread sums a run of 8 columns over the parts in order.
template <class Epilogue>
__global__ void gemm_sum_parts(const float* parts, int splits, int m, int n, Epilogue epilogue) {
  const int runs = (n + 7) / 8;
  const std::int64_t count = std::int64_t{m} * runs;
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float sums[8] = {};
#pragma unroll 4
  for (int s = 0; s < splits; ++s) {
    const float* from = parts + (s * count + i) * 8;
    const Packed<float> low = load_packed(from), high = load_packed(from + 4);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      sums[j] += low.at[j];
      sums[4 + j] += high.at[j];
    }
  }
  const int column = static_cast<int>(i % runs) * 8;
  epilogue(static_cast<int>(i / runs), column, sums, n - column < 8 ? n - column : 8);
}

template <class Product>
void launch_sum_parts(KernelContext& context, int splits, const Product& product,
                      const GemmCut& cut) {
  if (splits == 1) return;
  const std::int64_t runs = product.m * divide_up(product.n, 8);
  launch(product.name, gemm_sum_parts<typename Product::Epilogue>,
         {static_cast<unsigned>(divide_up(runs, 128))}, 128, 0, context.stream, cut.parts, splits,
         static_cast<int>(product.m), static_cast<int>(product.n), product.store);
}

// Checks that the device supports the product and that the workspace fits in the scratch.
template <class Product>
GemmCut gemm_cut(const KernelContext& context, const GemmPlan& plan, const Product& product) {
  constexpr std::int64_t kMost =
      (std::int64_t{1} << 31) - 4096;  // lines and depths are int on the device
  require(product.m <= kMost && product.n <= kMost && product.k <= kMost &&
              gemm_tiles(product.m, product.n, plan) < kMost,
          "a matrix product beyond 2^31");
  const std::int64_t workspace = gemm_workspace_bytes(plan, product.m, product.n);
  require(context.scratch.size() >= static_cast<std::size_t>(workspace),
          "scratch of a matrix product");
  return {plan.splits > 1 ? static_cast<int>(plan.split_depth) : static_cast<int>(kMost),
          workspace > 0 ? reinterpret_cast<float*>(context.scratch.data()) : nullptr};
}

template <Products kProducts, class Tile, class Group>
void launch_gemm_tiles(KernelContext& context, const GemmPlan& plan, const Group& group,
                       const GemmCut& cut) {
  using Block = GemmBlock<kProducts, Tile, typename Group::Product>;
  std::int64_t most = 0;
  for (int i = 0; i < group.count; ++i)
    most = std::max(most, gemm_tiles(group.products[i].m, group.products[i].n, plan));
  if (most == 0) return;
  const Grid grid{static_cast<unsigned>(most), static_cast<unsigned>(group.count),
                  static_cast<unsigned>(plan.splits)};
  launch(group.products[0].name, gemm<kProducts, Tile, Group>, grid, Tile::kThreads,
         sizeof(typename Block::Shared), context.stream, group, cut);
  if constexpr (Group::kMost == 1) launch_sum_parts(context, plan.splits, group.products[0], cut);
}

// Runs products that are cut in the same way, by the planned tiles.
template <Products kProducts, class Group>
void launch_planned(KernelContext& context, const GemmPlan& plan, const Group& group,
                    const GemmCut& cut) {
  using Product = typename Group::Product;
  if constexpr (sizeof(typename Product::LoaderA::Storage) == 2) {
    if (plan.warpgroup && plan.columns == 128)
      return launch_gemm_tiles<kProducts, WarpgroupTile128, Group>(context, plan, group, cut);
    if (plan.warpgroup)
      return launch_gemm_tiles<kProducts, WarpgroupTile64, Group>(context, plan, group, cut);
  }
  if (plan.tile == 128 && plan.columns == 128)
    return launch_gemm_tiles<kProducts, GemmTile128, Group>(context, plan, group, cut);
  if (plan.tile == 128)
    return launch_gemm_tiles<kProducts, GemmTile128x64, Group>(context, plan, group, cut);
  if (plan.tile == 64)
    return launch_gemm_tiles<kProducts, GemmTile64, Group>(context, plan, group, cut);
  launch_gemm_tiles<kProducts, GemmTile32, Group>(context, plan, group, cut);
}

// Runs the products as planned. Scratch: gemm_workspace_bytes(plan, m, n). REQUIRES: a group of
// several products is not split.
template <Products kProducts, class Product, int kMost>
void launch_gemm_group(KernelContext& context, const GemmPlan& plan,
                       const GemmGroup<Product, kMost>& group) {
  require(kMost == 1 || plan.splits == 1, "a group of matrix products is not split");
  GemmCut cut{};
  for (int i = 0; i < group.count; ++i) cut = gemm_cut(context, plan, group.products[i]);
  launch_planned<kProducts>(context, plan, group, cut);
}
template <Products kProducts, class Product>
void launch_gemm(KernelContext& context, const GemmPlan& plan, const Product& product) {
  launch_gemm_group<kProducts>(context, plan, GemmGroup<Product>{{product}});
}

// Calls call(std::integral_constant<Products, P>{}) with the arithmetic for operands of this
// storage.
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
