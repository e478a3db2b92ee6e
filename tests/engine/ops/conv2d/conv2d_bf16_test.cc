// Convolutions with products in bf16: against float64 of rounded operands at odd sizes, threads,
// the batch, alignment, scratch.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/conv2d/conv2d_reference.h"
#include "tests/engine/ops/common/bf16_test_support.h"

namespace engine::ops {
namespace {

using namespace kernel_test;
using gemm_test::difference;
using gemm_test::nan_operand;
using gemm_test::wide_magnitudes;

struct Bf16ConvCase {
  std::int64_t n;
  Conv2dGeometry g;

  Shape x() const { return {n, g.in_h, g.in_w, g.in_channels}; }
  Shape y() const { return {n, g.out_h(), g.out_w(), g.out_channels}; }
  Shape weight() const { return {g.kernel_h, g.kernel_w, g.in_channels, g.out_channels}; }
  std::size_t scratch(int threads) const {
    return conv2d_scratch_bytes(g, n, DType::kF32, threads, Device::Kind::kCpu, Products::kBF16);
  }
  std::string text() const {
    return x().to_string() + " -> " + y().to_string() + " kernel " + weight().to_string() +
           " stride " + std::to_string(g.stride);
  }
};

// One channel, odd and even counts of them on both sides, odd and even batches, strides whose
// classes have no taps, kernels that are not square, many panels, one panel in place.
const Bf16ConvCase kBf16ConvCases[] = {
    {0, {5, 5, 2, 3, 3, 3, 1, 1}},    {1, {5, 5, 1, 1, 1, 1, 1, 0}},
    {3, {7, 6, 1, 16, 5, 5, 1, 2}},   {2, {8, 9, 3, 10, 3, 3, 1, 1}},
    {5, {6, 6, 2, 33, 3, 3, 2, 1}},   {4, {9, 7, 5, 32, 3, 2, 1, 0}},
    {3, {10, 10, 17, 7, 1, 1, 2, 0}}, {2, {12, 12, 16, 48, 5, 5, 1, 2}},
    {1, {4, 4, 140, 33, 3, 3, 1, 1}}, {7, {5, 4, 6, 261, 3, 3, 3, 1}},
    {9, {3, 3, 8, 20, 2, 2, 4, 1}},   {2, {20, 20, 9, 31, 3, 3, 1, 1}}};

struct ConvPasses {
  Operand<float> y, dx, dweight, dbias;
};

struct RoundedConv {
  Bf16ConvCase c;
  Write write;
  Operand<float> x = random_operand(c.x(), 1), dy = random_operand(c.y(), 2),
                 weight = random_operand(c.weight(), 3),
                 bias = random_operand({c.g.out_channels}, 4);

  ConvPasses operator()(int threads) const {
    RoundedConv own = *this;
    ConvPasses p{nan_operand(c.y()), output(c.x(), write), output(c.weight(), write),
                 output({c.g.out_channels}, write)};
    Bf16Context context(threads, c.scratch(threads));
    context.context.convolutions = Convolutions::kDirect;
    conv2d_forward(context.context, {.geometry = c.g,
                                     .x = own.x.view(),
                                     .weight = own.weight.view(),
                                     .y = p.y.view(),
                                     .bias = own.bias.view()});
    conv2d_backward_data(context.context, {.geometry = c.g,
                                           .dy = own.dy.view(),
                                           .weight = own.weight.view(),
                                           .dx = p.dx.view(),
                                           .write = write});
    conv2d_backward_weights(context.context, {.geometry = c.g,
                                              .x = own.x.view(),
                                              .dy = own.dy.view(),
                                              .dweight = p.dweight.view(),
                                              .dbias = p.dbias.view(),
                                              .write = write});
    return p;
  }
};

struct WideConv {
  std::vector<double> y, dx, dweight, dbias;
};

// By the plain loops: `operand` makes what products read of an operand, `sum` what is added as it
// is.
template <class OfOperand, class OfSum>
WideConv wide_conv_of(const RoundedConv& run, OfOperand operand, OfSum sum) {
  const Bf16ConvCase& c = run.c;
  auto x = operand(run.x), dy = operand(run.dy), weight = operand(run.weight), bias = sum(run.bias),
       whole_dy = sum(run.dy);
  Operand<double> y(c.y(), 0);
  const auto start = [&](const Shape& shape) {
    return run.write == Write::kAdd ? sum(output(shape, run.write)) : Operand<double>(shape, 0);
  };
  auto dx = start(c.x()), dweight = start(c.weight()), dbias = start({c.g.out_channels});
  reference::conv2d_forward<double>(
      {.geometry = c.g, .x = x.view(), .weight = weight.view(), .y = y.view(), .bias = bias.view()},
      0, c.n);
  reference::conv2d_backward_data<double>({.geometry = c.g,
                                           .dy = dy.view(),
                                           .weight = weight.view(),
                                           .dx = dx.view(),
                                           .write = run.write},
                                          0, c.n);
  reference::conv2d_backward_weights<double>({.geometry = c.g,
                                              .x = x.view(),
                                              .dy = dy.view(),
                                              .dweight = dweight.view(),
                                              .write = run.write},
                                             0, c.g.kernel_h * c.g.kernel_w * c.g.in_channels);
  reference::conv2d_backward_bias<double>({.geometry = c.g,
                                           .x = x.view(),
                                           .dy = whole_dy.view(),
                                           .dweight = dweight.view(),
                                           .dbias = dbias.view(),
                                           .write = run.write});
  return {y.values, dx.values, dweight.values, dbias.values};
}

class Conv2dBf16 : public Bf16Test {};

// The bias and its gradient are not rounded.
TEST_F(Conv2dBf16, IsTheConvolutionOfRoundedOperands) {
  for (const Bf16ConvCase& c : kBf16ConvCases)
    for (const Write write : {Write::kOverwrite, Write::kAdd}) {
      const RoundedConv run{c, write};
      const WideConv expected = wide_conv_of(run, widen_rounded, widen),
                     bound = wide_conv_of(run, rounded_magnitudes, wide_magnitudes);
      for (int threads = 1; threads <= 3; ++threads) {
        SCOPED_TRACE(c.text() + ", " + std::to_string(threads) + " threads" +
                     (write == Write::kAdd ? ", add" : ""));
        const ConvPasses found = run(threads);
        EXPECT_EQ(difference(found.y.values, expected.y, bound.y), "");
        EXPECT_EQ(difference(found.dx.values, expected.dx, bound.dx), "");
        EXPECT_EQ(difference(found.dweight.values, expected.dweight, bound.dweight), "");
        EXPECT_EQ(difference(found.dbias.values, expected.dbias, bound.dbias), "");
      }
    }
}

// Else the test above would pass with products in f32.
TEST_F(Conv2dBf16, RoundsAsMuchAsBf16Does) {
  const RoundedConv run{{2, {8, 8, 6, 20, 3, 3, 1, 1}}, Write::kOverwrite};
  const WideConv exact = wide_conv_of(run, widen, widen);
  const ConvPasses found = run(1);
  const auto rounds = [](const Operand<float>& a, const std::vector<double>& b) {
    return far_apart(a.values, b, 1e-4, 1e-4) != "" && far_apart(a.values, b, 0, 0.1) == "";
  };
  EXPECT_TRUE(rounds(found.y, exact.y));
  EXPECT_TRUE(rounds(found.dx, exact.dx));
  EXPECT_TRUE(rounds(found.dweight, exact.dweight));
}

// Gradients of parameters are summed by each thread over its images, as in f32.
TEST_F(Conv2dBf16, ThreadsDoNotChangeTheBitsOfTheOthers) {
  for (const Bf16ConvCase& c : kBf16ConvCases) {
    const RoundedConv run{c, Write::kOverwrite};
    const ConvPasses one = run(1);
    for (const int threads : {2, 3, 5}) {
      const ConvPasses more = run(threads);
      EXPECT_EQ(more.y.values, one.y.values) << c.text();
      EXPECT_EQ(more.dx.values, one.dx.values) << c.text();
      const ConvPasses again = run(threads);
      EXPECT_EQ(more.dweight.values, again.dweight.values) << c.text();
      EXPECT_EQ(more.dbias.values, again.dbias.values) << c.text();
    }
  }
}

// An evaluation gives the same report for any number of ranks, which have batches of other sizes.
TEST_F(Conv2dBf16, AnImageHasTheSameOutputInAnyBatch) {
  for (const Bf16ConvCase& c : kBf16ConvCases) {
    const std::vector<float> all = RoundedConv{c, Write::kOverwrite}(1).y.values;
    for (Bf16ConvCase few = {1, c.g}; few.n < c.n; ++few.n) {
      const std::vector<float> some = RoundedConv{few, Write::kOverwrite}(2).y.values;
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << few.text();
    }
  }
}

TEST_F(Conv2dBf16, AlignmentDoesNotChangeBits) {
  for (const Bf16ConvCase& c : kBf16ConvCases) {
    const RoundedConv run{c, Write::kAdd};
    const ConvPasses expected = run(1);
    Misplaced x(run.x), dy(run.dy), weight(run.weight), bias(run.bias), y(nan_operand(c.y())),
        dx(output(c.x(), Write::kAdd)), dweight(output(c.weight(), Write::kAdd)),
        dbias(output({c.g.out_channels}, Write::kAdd));
    Bf16Context context(1, c.scratch(1));
    context.context.convolutions = Convolutions::kDirect;
    conv2d_forward(context.context, {.geometry = c.g,
                                     .x = x.view(),
                                     .weight = weight.view(),
                                     .y = y.view(),
                                     .bias = bias.view()});
    conv2d_backward_data(context.context, {.geometry = c.g,
                                           .dy = dy.view(),
                                           .weight = weight.view(),
                                           .dx = dx.view(),
                                           .write = Write::kAdd});
    conv2d_backward_weights(context.context, {.geometry = c.g,
                                              .x = x.view(),
                                              .dy = dy.view(),
                                              .dweight = dweight.view(),
                                              .dbias = dbias.view(),
                                              .write = Write::kAdd});
    EXPECT_EQ(y.values(), expected.y.values) << c.text();
    EXPECT_EQ(dx.values(), expected.dx.values) << c.text();
    EXPECT_EQ(dweight.values(), expected.dweight.values) << c.text();
    EXPECT_EQ(dbias.values(), expected.dbias.values) << c.text();
  }
}

TEST_F(Conv2dBf16, ScratchOfALargerBatchServesASmallerOne) {
  for (Bf16ConvCase c : kBf16ConvCases)
    for (const int threads : {1, 2, 5}) {
      std::size_t before = 0;
      for (c.n = 0; c.n < 70; ++c.n) {
        EXPECT_GE(c.scratch(threads), before) << c.text() << ", " << threads << " threads";
        before = c.scratch(threads);
      }
    }
}

}  // namespace
}  // namespace engine::ops
