// Convolution on a CUDA device against the float64 kernels: every storage, every kind of products,
// shapes that fit no tile.
#include "engine/ops/conv2d/conv2d.h"

#include "engine/ops/conv2d/conv2d_cuda.h"
#include "engine/ops/device/fast_divide.h"
#include "tests/engine/ops/common/products.h"
#include "tests/engine/ops/device/device_runs.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

// In turn: aligned channels or not, one tile or several, one class of pixels or several, taps
// beyond every edge.
std::vector<ConvProduct> cases() {
  return {
      {3, {5, 7, 16, 64, 1, 1, 1, 0}},   // 1 x 1, all pieces aligned
      {2, {9, 7, 17, 5, 1, 1, 2, 0}},    // 1 x 1 with a stride: classes without taps
      {2, {9, 11, 64, 16, 1, 1, 2, 0}},  //
      {2, {8, 8, 16, 16, 3, 3, 1, 1}},   //
      {1, {6, 5, 64, 64, 3, 3, 1, 1}},   //
      {3, {7, 9, 3, 17, 3, 3, 1, 1}},    // a stem
      {2, {9, 8, 16, 17, 3, 3, 2, 1}},   // four classes of unlike size
      {2, {8, 8, 17, 16, 3, 3, 2, 1}},   //
      {2, {4, 4, 64, 72, 3, 3, 1, 1}},   // more columns than a narrow tile
      {5, {4, 4, 16, 136, 3, 3, 1, 1}},  // more columns than any tile
      {2, {5, 4, 136, 16, 3, 3, 2, 1}},  //
      {2, {9, 9, 1, 5, 5, 5, 1, 2}},     //
      {2, {9, 10, 5, 3, 5, 5, 2, 2}},    //
      {2, {13, 12, 3, 16, 7, 7, 2, 3}},  // the stem for large images
      {1, {7, 7, 16, 1, 7, 7, 1, 3}},    //
      {2, {6, 7, 16, 16, 3, 3, 1, 0}},   // no padding
      {2, {7, 6, 16, 24, 3, 3, 2, 0}},   // pixels that no output reads
      {1, {5, 5, 16, 16, 3, 3, 2, 3}},   // outputs that read no pixel
      {1, {3, 3, 5, 16, 5, 5, 1, 3}},    // a kernel larger than the map
      {2, {7, 6, 16, 9, 3, 2, 2, 1}},    // a kernel that is not square
      {1, {11, 8, 16, 16, 3, 3, 3, 1}},  // nine classes: more than one launch
      {1, {1, 1, 16, 16, 3, 3, 2, 1}},   // classes without pixels
      {40, {4, 4, 3, 16, 3, 3, 1, 1}},   // the pixels of many images in a tile
      {0, {5, 5, 16, 16, 3, 3, 1, 1}},   // no images
  };
}

template <class Storage, Products kProducts, int kPerMyriad>
struct ConvMode {
  using S = Storage;
  static constexpr Products products = kProducts;
  static constexpr double error = kPerMyriad * 1e-4;
};

template <class M>
class Conv2dCuda : public CudaTest {};
using ConvModes =
    ::testing::Types<ConvMode<float, Products::kF32, 0>, ConvMode<float, Products::kTf32, 10>,
                     ConvMode<float, Products::kBF16, 100>, ConvMode<float, Products::kF16, 10>,
                     ConvMode<bf16, Products::kF32, 0>, ConvMode<f16, Products::kTf32, 0>,
                     ConvMode<double, Products::kF32, 0>>;
TYPED_TEST_SUITE(Conv2dCuda, ConvModes);

// Of a result stored as T: the mode's rounding of operands, float32's sums, and the last place.
template <class M, class T>
constexpr double allowed() {
  return std::max(M::error, state_error<typename M::S>()) +
         (std::is_same_v<T, float> ? 0 : storage_error<T>());
}

// How the products are cut; tile 0: by shape, through the public calls.
struct ConvCut {
  int tile = 0, columns = 0;
  std::int64_t splits = 1;  // of the pixels, for the weights
  bool warpgroup = false;

  template <class S>
  cuda::GemmPlan plan(std::int64_t k, std::int64_t parts = 1) const {
    cuda::GemmPlan plan =
        cuda::gemm_plan_of(k, cuda::gemm_stage_depth(sizeof(S)), tile, parts, columns);
    plan.warpgroup = warpgroup;
    return plan;
  }
};

std::size_t device_scratch(const ConvProduct& p, std::int64_t n, DType dtype) {
  return conv2d_scratch_bytes(p.g, n, dtype, 1, kDevice.kind);
}

// All three calls, with scratch for `planned` images.
template <class M>
void check(const ConvProduct& p, bool with_bias, Write write, std::int64_t planned,
           const ConvCut& cut = {}) {
  using S = typename M::S;
  SCOPED_TRACE(p.text());
  HostProduct start = operands_of(p, write);
  start.with_bias = with_bias;
  WideProduct wide = start.as(kept<S>, kept<S>, widen);
  Context host(1, p.scratch(1, DType::kF64));
  p.run(host.context, wide);

  auto device = start.as(to_device_as<S>, to_device_as<S>, to_device_as<StateOf<S>>);
  const bool planned_by_shape = cut.tile == 0 || std::is_same_v<S, double>;
  const cuda::GemmPlan weights_plan =
      planned_by_shape ? cuda::GemmPlan{} : cut.plan<S>(p.pixels(), cut.splits);
  DeviceContext c(std::max(device_scratch(p, planned, DTypeOf<S>::value),
                           static_cast<std::size_t>(cuda::gemm_workspace_bytes(
                               weights_plan, p.taps(), p.g.out_channels))),
                  M::products);
  if (planned_by_shape) {
    p.run(c.context, device);
  } else {
    cuda::conv2d_forward(c.context, p.forward(device), cut.plan<S>(p.taps()));
    cuda::conv2d_backward_data(c.context, p.backward_data(device), cut.plan<S>(p.taps()));
    cuda::conv2d_backward_weights(c.context, p.backward_weights(device), weights_plan);
  }
  c.finish();
  EXPECT_LE(relative_error(as_floats(device.y.values()), wide.y.values), (allowed<M, S>())) << "y";
  EXPECT_LE(relative_error(as_floats(device.dx.values()), wide.dx.values), (allowed<M, S>()))
      << "dx";
  EXPECT_LE(relative_error(device.dweight.values(), wide.dweight.values),
            (allowed<M, StateOf<S>>()))
      << "dweight";
  EXPECT_LE(relative_error(device.dbias.values(), wide.dbias.values), state_error<S>()) << "dbias";
}

TYPED_TEST(Conv2dCuda, AgreesWithFloat64) {
  int turn = 0;
  for (const ConvProduct& p : cases()) {
    check<TypeParam>(p, turn % 2 == 1, turn % 2 == 0 ? Write::kOverwrite : Write::kAdd, p.n);
    ++turn;
  }
}

// More pixels than one part of the sum over them, with the scratch of a larger batch.
TYPED_TEST(Conv2dCuda, SplitSumsAgreeWithFloat64) {
  for (const Write write : {Write::kOverwrite, Write::kAdd}) {
    check<TypeParam>({5, {17, 16, 5, 7, 3, 3, 1, 1}}, true, write, 9);
    check<TypeParam>({9, {12, 11, 16, 24, 1, 1, 1, 0}}, true, write, 9);
  }
}

// Several of each tile, none of which the shapes fill; channels in whole chunks or not.
TYPED_TEST(Conv2dCuda, EveryTileAndSplitAgreesWithFloat64) {
  for (const ConvCut& cut :
       {ConvCut{128, 128, 1}, ConvCut{128, 64, 3}, ConvCut{64, 64, 2}, ConvCut{32, 32, 4}}) {
    SCOPED_TRACE(std::to_string(cut.tile) + " x " + std::to_string(cut.columns));
    if (!tile_fits(cut.tile, cut.columns)) continue;
    for (const ConvProduct& p : {ConvProduct{2, {9, 11, 24, 136, 3, 3, 1, 1}},
                                 {2, {9, 8, 136, 40, 3, 3, 2, 1}},
                                 {3, {12, 7, 5, 33, 3, 3, 2, 1}}})
      check<TypeParam>(p, true, cut.tile == 64 ? Write::kAdd : Write::kOverwrite, p.n, cut);
  }
}

template <class M>
class Conv2dCudaWarpgroup : public CudaTest {};
using ShortModes =
    ::testing::Types<ConvMode<bf16, Products::kBF16, 0>, ConvMode<f16, Products::kF16, 0>>;
TYPED_TEST_SUITE(Conv2dCudaWarpgroup, ShortModes);

// More stages than the ring has, several tiles, one class of pixels or several.
TYPED_TEST(Conv2dCudaWarpgroup, AgreesWithFloat64) {
  if (!runs_warpgroup_products()) GTEST_SKIP() << "of compute capability 9.0";
  for (const ConvCut& cut : {ConvCut{128, 128, 1, true}, ConvCut{128, 128, 3, true},
                             ConvCut{128, 64, 1, true}, ConvCut{128, 64, 3, true}}) {
    SCOPED_TRACE(std::to_string(cut.columns) + " columns");
    for (const ConvProduct& p : {ConvProduct{2, {9, 11, 24, 136, 3, 3, 1, 1}},
                                 {2, {9, 8, 136, 40, 3, 3, 2, 1}},
                                 {3, {12, 7, 5, 33, 3, 3, 2, 1}},
                                 {2, {7, 9, 64, 130, 1, 1, 1, 0}}})
      check<TypeParam>(p, true, cut.splits == 1 ? Write::kOverwrite : Write::kAdd, p.n, cut);
  }
}

TYPED_TEST(Conv2dCuda, NoImagesLeaveSumsAtZeroOrAsTheyWere) {
  for (const Write write : {Write::kOverwrite, Write::kAdd})
    check<TypeParam>({0, {5, 5, 3, 4, 3, 3, 1, 1}}, true, write, 4);
}

TYPED_TEST(Conv2dCuda, TwoRunsGiveTheSameBits) {
  using S = typename TypeParam::S;
  const ConvProduct p{5, {17, 16, 16, 24, 3, 3, 2, 1}};
  const HostProduct start = operands_of(p, Write::kOverwrite);
  std::vector<std::vector<StateOf<S>>> dx, dweight;
  for (int run = 0; run < 2; ++run) {
    DeviceContext c(device_scratch(p, p.n, DTypeOf<S>::value), TypeParam::products);
    auto device = start.as(to_device_as<S>, to_device_as<S>, to_device_as<StateOf<S>>);
    p.run(c.context, device);
    c.finish();
    dx.push_back(as_floats(device.dx.values())), dweight.push_back(device.dweight.values());
  }
  EXPECT_EQ(dx[0], dx[1]);
  EXPECT_EQ(dweight[0], dweight[1]);
}

// Operands that begin where no 16-byte piece does are read and written element by element.
class Conv2dCudaPlaces : public CudaTest {};

TEST_F(Conv2dCudaPlaces, OperandsMayBeginAnywhere) {
  const ConvProduct p{2, {5, 5, 16, 16, 3, 3, 1, 1}};
  const HostProduct start = operands_of(p, Write::kAdd);  // without a bias
  WideProduct wide = start.as(widen, widen, widen);
  Context host(1, p.scratch(1, DType::kF64));
  conv2d_forward(host.context, p.forward(wide));
  const auto shift = [](const Operand<float>& operand) {
    return Shifted<float>(operand.shape, operand.values, 1);
  };
  auto shifted = start.as(shift, shift, shift);
  DeviceContext d;
  conv2d_forward(d.context, p.forward(shifted));
  d.finish();
  EXPECT_LE(relative_error(shifted.y.values(), wide.y.values), 1e-5);
}

class Conv2dCudaScratch : public CudaTest {};

TEST_F(Conv2dCudaScratch, OfALargerBatchServesASmallerOne) {
  for (const ConvProduct& p : cases()) {
    SCOPED_TRACE(p.text());
    expect_growing_scratch(3000,
                           [&](std::int64_t n) { return device_scratch(p, n, DType::kBF16); });
  }
}

TEST(FastDivide, IsDivision) {
  std::mt19937 generator(1);
  std::vector<std::int64_t> divisors{
      1, 2, 3, 5, 7, 9, 25, 49, 641, 65535, 65536, 65537, 1 << 30, (1 << 30) + 1, 2147483647};
  for (int i = 0; i < 200; ++i) divisors.push_back(1 + generator() % 100000);
  for (const std::int64_t divisor : divisors) {
    const cuda::FastDivide by(divisor);
    std::vector<std::int64_t> values{0, 1, 2147483647, 2147483646};
    for (std::int64_t times = 1; times * divisor <= 2147483647 && times < 50; ++times)
      values.insert(values.end(), {times * divisor - 1, times * divisor});
    const std::int64_t last = 2147483647 / divisor * divisor;
    values.insert(values.end(), {last - 1, last});
    for (int i = 0; i < 1000; ++i) values.push_back(generator() >> 1);
    for (const std::int64_t value : values) {
      if (value < 0) continue;
      ASSERT_EQ(by.quotient(static_cast<int>(value)), value / divisor) << value << " / " << divisor;
    }
  }
}

}  // namespace
}  // namespace engine::ops
