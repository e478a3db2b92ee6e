// Convolution on a CUDA device against the float64 kernels: every storage, every kind of products,
// shapes that fit no tile.
#include "engine/ops/conv2d/conv2d.h"

#include "engine/ops/conv2d/conv2d_cuda.h"
#include "engine/ops/device/fast_divide.h"
#include "tests/engine/ops/device/cuda_test_support.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

struct ConvCase {
  std::int64_t n;
  Conv2dGeometry g;
  Shape x() const { return {n, g.in_h, g.in_w, g.in_channels}; }
  Shape y() const { return {n, g.out_h(), g.out_w(), g.out_channels}; }
  Shape weight() const { return {g.kernel_h, g.kernel_w, g.in_channels, g.out_channels}; }
};

std::string to_string(const ConvCase& c) {
  return "x " + c.x().to_string() + " weight " + c.weight().to_string() + " stride " +
         std::to_string(c.g.stride) + " padding " + std::to_string(c.g.padding);
}

// In turn: aligned channels or not, one tile or several, one class of pixels or several, taps
// beyond every edge.
std::vector<ConvCase> cases() {
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
                     ConvMode<bf16, Products::kF32, 0>, ConvMode<f16, Products::kTf32, 0>>;
TYPED_TEST_SUITE(Conv2dCuda, ConvModes);

// Of a result stored as T: the mode's rounding of operands, float32's sums, and the last place.
template <class M, class T>
constexpr double allowed() {
  return std::max(M::error, 1e-5) + (std::is_same_v<T, float> ? 0 : storage_error<T>());
}

// How the products are cut; tile 0: by shape, through the public calls.
struct ConvCut {
  int tile = 0, columns = 0;
  std::int64_t splits = 1;  // of the pixels, for the weights

  template <class S>
  cuda::GemmPlan plan(std::int64_t k, std::int64_t parts = 1) const {
    return cuda::gemm_plan_of(k, cuda::gemm_stage_depth(sizeof(S)), tile, parts, columns);
  }
};

struct Problem {
  ConvCase c;
  Operand<float> x, weight, bias, dy, dx, dweight, dbias;
  explicit Problem(const ConvCase& with)
      : c(with),
        x(random_operand(c.x(), 1)),
        weight(random_operand(c.weight(), 2)),
        bias(random_operand({c.g.out_channels}, 3)),
        dy(random_operand(c.y(), 4)),
        dx(random_operand(c.x(), 5)),
        dweight(random_operand(c.weight(), 6)),
        dbias(random_operand({c.g.out_channels}, 7)) {}

  std::int64_t taps() const { return c.g.kernel_h * c.g.kernel_w * c.g.in_channels; }
  std::int64_t pixels() const { return c.n * c.g.out_h() * c.g.out_w(); }
};

template <class M>
void check_forward(const Problem& p, bool with_bias, const ConvCut& cut = {}) {
  using S = typename M::S;
  Operand<double> x = kept<S>(p.x), weight = kept<S>(p.weight), bias = kept<float>(p.bias),
                  y(p.c.y(), 0);
  Context host(1, conv2d_scratch_bytes(p.c.g, p.c.n, DType::kF64, 1));
  conv2d_forward(host.context, {.geometry = p.c.g,
                                .x = x.view(),
                                .weight = weight.view(),
                                .y = y.view(),
                                .bias = with_bias ? bias.view() : TensorView{}});
  DeviceContext c(conv2d_scratch_bytes(p.c.g, p.c.n, DTypeOf<S>::value, 1, Device::Kind::kCuda),
                  M::products);
  const auto device_x = to_device<S>(p.c.x(), p.x.values),
             device_weight = to_device<S>(p.c.weight(), p.weight.values);
  const DeviceOperand<float> device_bias({p.c.g.out_channels}, p.bias.values);
  const DeviceOperand<S> device_y(p.c.y(), std::vector<S>(y.values.size(), from_float<S>(NAN)));
  const Conv2dForward o{.geometry = p.c.g,
                        .x = device_x.view(),
                        .weight = device_weight.view(),
                        .y = device_y.view(),
                        .bias = with_bias ? device_bias.view() : TensorView{}};
  if (cut.tile == 0)
    conv2d_forward(c.context, o);
  else
    cuda::conv2d_forward(c.context, o, cut.plan<S>(p.taps()));
  c.finish();
  EXPECT_LE(relative_error(as_floats(device_y.values()), y.values), (allowed<M, S>())) << "y";
}

template <class M>
void check_backward(const Problem& p, Write write, std::int64_t planned, const ConvCut& cut = {}) {
  using S = typename M::S;
  Operand<double> x = kept<S>(p.x), weight = kept<S>(p.weight), dy = kept<S>(p.dy),
                  dx = kept<S>(p.dx), dweight = kept<float>(p.dweight),
                  dbias = kept<float>(p.dbias);
  Context host(1, conv2d_scratch_bytes(p.c.g, p.c.n, DType::kF64, 1));
  conv2d_backward_data(host.context, {.geometry = p.c.g,
                                      .dy = dy.view(),
                                      .weight = weight.view(),
                                      .dx = dx.view(),
                                      .write = write});
  conv2d_backward_weights(host.context, {.geometry = p.c.g,
                                         .x = x.view(),
                                         .dy = dy.view(),
                                         .dweight = dweight.view(),
                                         .dbias = dbias.view(),
                                         .write = write});

  const cuda::GemmPlan weights_plan =
      cut.tile == 0 ? cuda::GemmPlan{} : cut.plan<S>(p.pixels(), cut.splits);
  DeviceContext c(
      std::max(conv2d_scratch_bytes(p.c.g, planned, DTypeOf<S>::value, 1, Device::Kind::kCuda),
               static_cast<std::size_t>(
                   cuda::gemm_workspace_bytes(weights_plan, p.taps(), p.c.g.out_channels))),
      M::products);
  const auto start = [&](const Operand<float>& operand) {
    return write == Write::kAdd ? operand.values : std::vector<float>(operand.values.size(), NAN);
  };
  const auto device_x = to_device<S>(p.c.x(), p.x.values),
             device_weight = to_device<S>(p.c.weight(), p.weight.values),
             device_dy = to_device<S>(p.c.y(), p.dy.values),
             device_dx = to_device<S>(p.c.x(), start(p.dx));
  const DeviceOperand<float> device_dweight(p.c.weight(), start(p.dweight)),
      device_dbias({p.c.g.out_channels}, start(p.dbias));
  const Conv2dBackwardData data{.geometry = p.c.g,
                                .dy = device_dy.view(),
                                .weight = device_weight.view(),
                                .dx = device_dx.view(),
                                .write = write};
  const Conv2dBackwardWeights weights{.geometry = p.c.g,
                                      .x = device_x.view(),
                                      .dy = device_dy.view(),
                                      .dweight = device_dweight.view(),
                                      .dbias = device_dbias.view(),
                                      .write = write};
  if (cut.tile == 0) {
    conv2d_backward_data(c.context, data);
    conv2d_backward_weights(c.context, weights);
  } else {
    cuda::conv2d_backward_data(c.context, data, cut.plan<S>(p.taps()));
    cuda::conv2d_backward_weights(c.context, weights, weights_plan);
  }
  c.finish();
  EXPECT_LE(relative_error(as_floats(device_dx.values()), dx.values), (allowed<M, S>())) << "dx";
  EXPECT_LE(relative_error(device_dweight.values(), dweight.values), (allowed<M, float>()))
      << "dweight";
  EXPECT_LE(relative_error(device_dbias.values(), dbias.values), 1e-5) << "dbias";
}

TYPED_TEST(Conv2dCuda, ForwardAgreesWithFloat64) {
  bool with_bias = false;
  for (const ConvCase& c : cases()) {
    SCOPED_TRACE(to_string(c));
    check_forward<TypeParam>(Problem(c), with_bias = !with_bias);
  }
}

TYPED_TEST(Conv2dCuda, BackwardAgreesWithFloat64) {
  int turn = 0;
  for (const ConvCase& c : cases()) {
    SCOPED_TRACE(to_string(c));
    check_backward<TypeParam>(Problem(c), turn++ % 2 == 0 ? Write::kOverwrite : Write::kAdd, c.n);
  }
}

// More pixels than one part of the sum over them, with the scratch of a larger batch.
TYPED_TEST(Conv2dCuda, SplitSumsAgreeWithFloat64) {
  for (const Write write : {Write::kOverwrite, Write::kAdd}) {
    check_backward<TypeParam>(Problem({5, {17, 16, 5, 7, 3, 3, 1, 1}}), write, 9);
    check_backward<TypeParam>(Problem({9, {12, 11, 16, 24, 1, 1, 1, 0}}), write, 9);
  }
}

// Several of each tile, none of which the shapes fill; channels in whole chunks or not.
TYPED_TEST(Conv2dCuda, EveryTileAndSplitAgreesWithFloat64) {
  for (const ConvCut& cut :
       {ConvCut{128, 128, 1}, ConvCut{128, 64, 3}, ConvCut{64, 64, 2}, ConvCut{32, 32, 4}}) {
    SCOPED_TRACE(std::to_string(cut.tile) + " x " + std::to_string(cut.columns));
    for (const ConvCase& c : {ConvCase{2, {9, 11, 24, 136, 3, 3, 1, 1}},
                              {2, {9, 8, 136, 40, 3, 3, 2, 1}},
                              {3, {12, 7, 5, 33, 3, 3, 2, 1}}}) {
      SCOPED_TRACE(to_string(c));
      const Problem p(c);
      check_forward<TypeParam>(p, true, cut);
      check_backward<TypeParam>(p, cut.tile == 64 ? Write::kAdd : Write::kOverwrite, c.n, cut);
    }
  }
}

TYPED_TEST(Conv2dCuda, NoImagesLeaveSumsAtZeroOrAsTheyWere) {
  const Problem p({0, {5, 5, 3, 4, 3, 3, 1, 1}});
  check_backward<TypeParam>(p, Write::kOverwrite, 4);
  check_backward<TypeParam>(p, Write::kAdd, 4);
}

TYPED_TEST(Conv2dCuda, TwoRunsGiveTheSameBits) {
  using S = typename TypeParam::S;
  const Problem p({5, {17, 16, 16, 24, 3, 3, 2, 1}});
  std::vector<std::vector<float>> dx, dweight;
  for (int run = 0; run < 2; ++run) {
    DeviceContext c(conv2d_scratch_bytes(p.c.g, p.c.n, DTypeOf<S>::value, 1, Device::Kind::kCuda),
                    TypeParam::products);
    const auto x = to_device<S>(p.c.x(), p.x.values),
               weight = to_device<S>(p.c.weight(), p.weight.values),
               dy = to_device<S>(p.c.y(), p.dy.values), to = to_device<S>(p.c.x(), p.dx.values);
    const DeviceOperand<float> gradient(p.c.weight(), p.dweight.values);
    conv2d_backward_data(
        c.context, {.geometry = p.c.g, .dy = dy.view(), .weight = weight.view(), .dx = to.view()});
    conv2d_backward_weights(
        c.context, {.geometry = p.c.g, .x = x.view(), .dy = dy.view(), .dweight = gradient.view()});
    c.finish();
    dx.push_back(as_floats(to.values())), dweight.push_back(gradient.values());
  }
  EXPECT_EQ(dx[0], dx[1]);
  EXPECT_EQ(dweight[0], dweight[1]);
}

// Operands that begin where no 16-byte piece does are read and written element by element.
class Conv2dCudaPlaces : public CudaTest {};

TEST_F(Conv2dCudaPlaces, OperandsMayBeginAnywhere) {
  const ConvCase c{2, {5, 5, 16, 16, 3, 3, 1, 1}};
  const auto inside = [](const Operand<float>& operand) {
    std::vector<float> values(1, NAN);
    values.insert(values.end(), operand.values.begin(), operand.values.end());
    return values;
  };
  const auto view = [](const DeviceOperand<float>& memory, const Shape& shape) {
    TensorView v = memory.view();
    return TensorView{static_cast<float*>(v.data) + 1, DType::kF32, shape, kDevice};
  };
  const Problem p(c);
  Operand<double> x = kept<float>(p.x), weight = kept<float>(p.weight), y(c.y(), 0);
  Context host(1, conv2d_scratch_bytes(c.g, c.n, DType::kF64, 1));
  conv2d_forward(host.context,
                 {.geometry = c.g, .x = x.view(), .weight = weight.view(), .y = y.view()});
  DeviceContext d;
  const DeviceOperand<float> device_x({c.x().count() + 1}, inside(p.x)),
      device_weight({c.weight().count() + 1}, inside(p.weight)),
      device_y({c.y().count() + 1}, inside(p.dy));
  conv2d_forward(d.context, {.geometry = c.g,
                             .x = view(device_x, c.x()),
                             .weight = view(device_weight, c.weight()),
                             .y = view(device_y, c.y())});
  d.finish();
  std::vector<float> found = device_y.values();
  EXPECT_TRUE(std::isnan(found[0]));
  found.erase(found.begin());
  EXPECT_LE(relative_error(found, y.values), 1e-5);
}

class Conv2dCudaScratch : public CudaTest {};

TEST_F(Conv2dCudaScratch, OfALargerBatchServesASmallerOne) {
  for (const ConvCase& c : cases()) {
    std::size_t before = 0;
    for (std::int64_t n = 0; n < 3000; n = n * 5 / 4 + 1) {
      const std::size_t bytes = conv2d_scratch_bytes(c.g, n, DType::kBF16, 1, Device::Kind::kCuda);
      EXPECT_GE(bytes, before) << to_string(c) << " " << n;
      before = bytes;
    }
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
