// The planner of matrix products: pure functions of the shape and the number of processors.
#include "engine/ops/gemm/gemm_plan.h"

#include <gtest/gtest.h>

namespace engine::ops::cuda {
namespace {

constexpr int kH100 = 132, kA100 = 108;

const GemmKind kHalf(DType::kBF16, Products::kF32), kFloat(DType::kF32, Products::kF32);

// The share of a device's multiplications that are of use, if its processors take equal time for
// each block and it stays as full as the busiest of them.
double use(const GemmShape& shape, const GemmPlan& plan, int processors) {
  const std::int64_t each = divide_up(gemm_tiles(shape.m, shape.n, plan) * plan.splits, processors);
  const double done = static_cast<double>(each * processors * plan.tile * plan.columns) *
                      static_cast<double>(divide_up(shape.k, plan.splits));
  return static_cast<double>(shape.m * shape.n) * static_cast<double>(shape.k) / done;
}

TEST(GemmPlan, KindsFollowFromStorageAndProducts) {
  EXPECT_FALSE(kFloat.tensor);
  EXPECT_TRUE(kHalf.tensor);
  EXPECT_TRUE(GemmKind(DType::kF32, Products::kTf32).tensor);
  EXPECT_EQ(kFloat.stage_depth, 32);
  EXPECT_EQ(kHalf.stage_depth, 64);
}

TEST(GemmPlan, LargeProductsGetTheLargeTileAndNoSplit) {
  for (const GemmKind& kind : {kHalf, kFloat}) {
    const GemmPlan plan = plan_gemm({4096, 4096, 4096}, kind, kH100);
    EXPECT_EQ(plan.tile, 128);
    EXPECT_EQ(plan.columns, 128);
    EXPECT_EQ(plan.splits, 1);
  }
}

TEST(GemmPlan, AWishIsKeptAsFarAsTheWorkspaceGoes) {
  const GemmShape shape{512, 512, 50000};
  for (const GemmTileFacts& tile : kGemmTiles) {
    const GemmCutWish wish{tile.rows, tile.columns, 4};
    const GemmPlan plan = plan_gemm(shape, kHalf, kH100, 512, wish);
    EXPECT_EQ(plan.tile, tile.rows);
    EXPECT_EQ(plan.columns, tile.columns);
    EXPECT_EQ(plan.splits, 4);
    EXPECT_EQ(plan_gemm(shape, kHalf, kH100, 1, wish).splits, 1);
    const GemmPlan most = plan_gemm(shape, kHalf, kH100, 512, {tile.rows, tile.columns, 512});
    EXPECT_LE(gemm_workspace_bytes(most, shape.m, shape.n),
              max_gemm_workspace_bytes(shape, kHalf.stage_depth, kH100));
  }
}

TEST(GemmPlan, TilesThatDoNotFitADeviceAreNotPlanned) {
  const GemmDevice small(40, {0, 1, 1, 2});  // 64 KiB of shared memory
  const GemmPlan plan = plan_gemm({4096, 4096, 4096}, kFloat, small);
  EXPECT_EQ(plan.tile, 128);
  EXPECT_EQ(plan.columns, 64);
  const GemmPlan other = plan_gemm({4096, 4096, 4096}, kFloat, small, 512, {128, 128, 2});
  EXPECT_EQ(other.columns, 64) << "nor wished for";
  EXPECT_EQ(plan_gemm({4096, 4096, 4096}, kFloat, GemmDevice(40, {0, 0, 0, 1})).tile, 32);
}

TEST(GemmPlan, FewTilesAreSplitWhereKIsLong) {
  const GemmPlan plan = plan_gemm({512, 512, 50000}, kHalf, kH100);
  EXPECT_EQ(plan.tile, 128);
  EXPECT_GT(plan.splits, 8);
  EXPECT_EQ(plan_gemm({512, 512, 50000}, kHalf, kH100, 1).splits, 1);
}

TEST(GemmPlan, SmallProductsGetSmallTiles) {
  EXPECT_EQ(plan_gemm({1024, 1000, 64}, kHalf, kH100).tile, 64);
  EXPECT_EQ(plan_gemm({256, 10, 512}, kHalf, kH100).tile, 32);
  EXPECT_EQ(plan_gemm({0, 10, 512}, kHalf, kH100).splits, 1);
}

TEST(GemmPlan, NarrowProductsGetTheNarrowTile) {
  const GemmPlan plan = plan_gemm({131072, 64, 576}, kHalf, kH100);
  EXPECT_EQ(plan.tile, 128);
  EXPECT_EQ(plan.columns, 64);
}

TEST(GemmPlan, PartsCoverK) {
  for (const std::int64_t k : {0, 1, 31, 32, 1000, 50000}) {
    const GemmPlan plan = plan_gemm({64, 64, k}, kHalf, kH100);
    EXPECT_GE(plan.splits * plan.split_depth, k);
    EXPECT_LT((plan.splits - 1) * plan.split_depth, std::max<std::int64_t>(k, 1));
    EXPECT_EQ(plan.split_depth % kHalf.stage_depth, 0);
  }
}

TEST(GemmPlan, FollowsTheDevice) {
  // 128 of the large tile: less than one each of an H100, but more than an A100 has.
  const GemmShape shape{8192, 256, 2304};
  EXPECT_EQ(plan_gemm(shape, kHalf, kH100, 1).columns, 128);
  EXPECT_LT(plan_gemm(shape, kHalf, kA100, 1).columns, 128);
  EXPECT_GT(plan_gemm({512, 512, 50000}, kHalf, kH100).splits,
            plan_gemm({512, 512, 50000}, kHalf, 4).splits);
}

TEST(GemmPlan, FollowsTheBlocksThatAProcessorHolds) {
  // 100 KB of shared memory (8.6, 8.9, 12.0): one block of 4 warps of the narrow tile is little.
  constexpr GemmDevice kSmall{kA100, {1, 1, 2, 5}}, kLarge{kA100};
  const GemmShape narrow{131072, 64, 576};
  EXPECT_EQ(plan_gemm(narrow, kHalf, kLarge, 1).tile, 128);
  EXPECT_EQ(plan_gemm(narrow, kHalf, kSmall, 1).tile, 64);
  for (const GemmShape& shape : {narrow, GemmShape{512, 512, 50000}, {4096, 4096, 4096}}) {
    const GemmPlan plan = plan_gemm(shape, kHalf, kSmall);
    EXPECT_LE(gemm_workspace_bytes(plan, shape.m, shape.n),
              max_gemm_workspace_bytes(shape, kHalf.stage_depth, kA100));
  }
}

TEST(GemmPlan, WorkspaceOfTheLargestServesTheSmaller) {
  for (const int processors : {4, kA100, kH100})
    for (const GemmKind& kind : {kHalf, kFloat})
      for (const std::int64_t m : {1, 33, 500, 4608})
        for (const std::int64_t n : {1, 10, 64, 1000})
          for (const std::int64_t k : {0, 100, 5000, 131072}) {
            const std::int64_t most =
                max_gemm_workspace_bytes({m, n, k}, kind.stage_depth, processors);
            for (const std::int64_t part : {1, 2, 3, 7}) {
              for (const GemmShape& smaller :
                   {GemmShape{m / part, n, k}, GemmShape{m, n, k / part}}) {
                const GemmPlan plan = plan_gemm(smaller, kind, processors);
                ASSERT_LE(gemm_workspace_bytes(plan, smaller.m, smaller.n), most);
              }
            }
            ASSERT_LE(most, max_gemm_workspace_bytes({m, n, k}, kind.stage_depth, kH100));
          }
}

// Convolutions of networks for CIFAR and ImageNet, 128 images.
TEST(GemmPlan, KeepsADeviceBusy) {
  struct Layer {
    std::int64_t map, in, out, kernel, stride;
  };
  for (const int processors : {kA100, kH100})
    for (const Layer& l : {Layer{32, 64, 64, 3, 1},
                           {32, 64, 128, 3, 2},
                           {16, 128, 128, 3, 1},
                           {8, 256, 256, 3, 1},
                           {4, 512, 512, 3, 1},
                           {8, 1024, 256, 1, 1},
                           {56, 64, 64, 3, 1},
                           {28, 128, 128, 3, 1},
                           {7, 512, 512, 3, 1}}) {
      SCOPED_TRACE(std::to_string(l.map) + " " + std::to_string(l.in) + " -> " +
                   std::to_string(l.out) + ", " + std::to_string(processors));
      const std::int64_t places = 128 * (l.map / l.stride) * (l.map / l.stride),
                         taps = l.kernel * l.kernel * l.in;
      const GemmShape forward{places, l.out, taps}, weights{taps, l.out, places};
      EXPECT_GE(use(forward, plan_gemm(forward, kHalf, processors, 1), processors), 0.55);
      EXPECT_GE(use(weights, plan_gemm(weights, kHalf, processors), processors), 0.55);
    }
}

}  // namespace
}  // namespace engine::ops::cuda
