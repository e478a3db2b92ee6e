// Convolution kernels: the reference by hand, the fast ones against it at odd sizes on every
// instruction set, what is refused.
#include "engine/ops/conv2d/conv2d.h"

#include <gtest/gtest.h>

#include <functional>

#include "engine/ops/conv2d/conv2d_reference.h"
#include "tests/engine/ops/common/kernel_test_support.h"

namespace engine::ops {
namespace {

using namespace kernel_test;
using gemm_test::difference;
using gemm_test::nan_operand;
using gemm_test::wide_magnitudes;

struct ConvCase {
  std::int64_t n;
  Conv2dGeometry g;
  Shape x() const { return {n, g.in_h, g.in_w, g.in_channels}; }
  Shape y() const { return {n, g.out_h(), g.out_w(), g.out_channels}; }
  Shape weight() const { return {g.kernel_h, g.kernel_w, g.in_channels, g.out_channels}; }
};

std::string to_string(const ConvCase& c, int threads, Write write) {
  return "n " + std::to_string(c.n) + " map " + std::to_string(c.g.in_h) + "x" +
         std::to_string(c.g.in_w) + " channels " + std::to_string(c.g.in_channels) + " -> " +
         std::to_string(c.g.out_channels) + " kernel " + std::to_string(c.g.kernel_h) + "x" +
         std::to_string(c.g.kernel_w) + " stride " + std::to_string(c.g.stride) + " padding " +
         std::to_string(c.g.padding) + " threads " + std::to_string(threads) +
         (write == Write::kAdd ? " add" : "");
}

// Every combination of kernel, stride and padding that has an output, with map, channels and batch
// going round.
std::vector<ConvCase> cases() {
  const std::int64_t channels[] = {1, 3, 7, 16, 17, 33, 64}, maps[] = {1, 2, 3, 4, 5, 7, 8, 9},
                     batches[] = {1, 3, 2, 7};
  std::vector<ConvCase> all;
  std::size_t turn = 0;
  for (const std::int64_t kernel : {1, 2, 3, 5}) {
    for (const std::int64_t stride : {1, 2, 3}) {
      for (std::int64_t padding = 0; padding <= 2; ++padding) {
        for (int variant = 0; variant < 4; ++variant, ++turn) {
          ConvCase c{batches[turn % 4],
                     {maps[turn % 8], maps[(turn * 3 + 1) % 8], channels[turn % 7],
                      channels[(turn * 5 + 2) % 7], kernel, kernel, stride, padding}};
          if (c.g.in_h + 2 * padding >= kernel && c.g.in_w + 2 * padding >= kernel)
            all.push_back(c);
        }
      }
    }
  }
  all.push_back({0, {5, 5, 3, 4, 3, 3, 1, 1}});    // no images
  all.push_back({2, {20, 21, 2, 5, 3, 3, 1, 1}});  // more places than one block
  all.push_back({40, {4, 4, 3, 18, 3, 3, 1, 1}});  // many images to a group
  for (const std::int64_t kernel : {3, 5, 7}) {    // first layers, whose tiles are of rows
    all.push_back({3, {28, 28, 1, 16, kernel, kernel, 1, kernel / 2}});
    all.push_back({2, {9, 31, 1, 7, kernel, kernel, 1, 0}});
    all.push_back({2, {17, 19, 3, 16, kernel, kernel, 1, 2}});
    all.push_back({2, {6, 25, 3, 3, 2, kernel, 1, 1}});
    all.push_back({3, {12, 11, 1, 13, kernel, kernel, 2, 1}});
  }
  all.push_back(
      {3, {4, 4, 130, 20, 3, 3, 1, 1}});  // one kernel row exceeds a chunk, in both directions
  all.push_back({2, {6, 5, 20, 130, 3, 3, 2, 1}});
  all.push_back({2, {13, 10, 3, 17, 7, 7, 2, 3}});  // the first layer of networks for large images
  all.push_back({2, {7, 6, 5, 9, 3, 2, 2, 1}});     // a kernel that is not square
  all.push_back({2, {9, 9, 3, 4, 5, 5, 5, 2}});     // a stride without a fast kernel
  // Maps read in place: more places than a block and more columns than panels packed together, with
  // and without places left out; more channels than a chunk.
  all.push_back({2, {18, 17, 20, 290, 1, 1, 1, 0}});
  all.push_back({2, {37, 35, 6, 290, 1, 1, 2, 0}});
  all.push_back({3, {5, 5, 400, 20, 1, 1, 1, 0}});
  return all;
}

// Calls check(case, threads, write) on every instruction set.
void for_each_conv_case(const std::function<void(const ConvCase&, int, Write)>& check) {
  int turn = 0;
  for (const CpuIsa isa : gemm_test::isas_here()) {
    const gemm_test::ScopedIsa scope(isa);
    for (const ConvCase& c : cases()) {
      const int threads = 1 + turn++ % 3;
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(std::string(to_string(isa)) + " " + to_string(c, threads, write));
        check(c, threads, write);
      }
    }
  }
}

// What the reference's results start from.
Operand<double> start(const Operand<double>& operand, Write write) {
  return write == Write::kAdd ? operand : Operand<double>(operand.shape, 0);
}

TEST(Conv2dReference, AgreesWithAConvolutionByHand) {
  // 3 x 3 map of 1..9, one channel; kernel 2 x 2 = [1 2; 3 4]; stride 2, padding 1: the outputs see
  // the corners.
  const Conv2dGeometry g{3, 3, 1, 1, 2, 2, 2, 1};
  auto x = operand_of<double>({1, 3, 3, 1}, {1, 2, 3, 4, 5, 6, 7, 8, 9}),
       weight = operand_of<double>({2, 2, 1, 1}, {1, 2, 3, 4}),
       bias = operand_of<double>({1}, {100}), y = operand_of<double>({1, 2, 2, 1}, {0, 0, 0, 0});
  reference::conv2d_forward<double>(
      {.geometry = g, .x = x.view(), .weight = weight.view(), .y = y.view(), .bias = bias.view()},
      0, 1);
  EXPECT_EQ(y.values, (std::vector<double>{104, 118, 136, 177}));
  auto dy = operand_of<double>({1, 2, 2, 1}, {1, 10, 100, 1000}), dx = x, dweight = weight,
       dbias = bias;
  reference::conv2d_backward_data<double>(
      {.geometry = g, .dy = dy.view(), .weight = weight.view(), .dx = dx.view()}, 0, 1);
  EXPECT_EQ(dx.values, (std::vector<double>{4, 30, 40, 200, 1000, 2000, 400, 3000, 4000}));
  const Conv2dBackwardWeights o{.geometry = g,
                                .x = x.view(),
                                .dy = dy.view(),
                                .dweight = dweight.view(),
                                .dbias = dbias.view()};
  reference::conv2d_backward_weights<double>(o, 0, 4);
  EXPECT_EQ(dweight.values, (std::vector<double>{5000, 6400, 8020, 9731}));
  reference::conv2d_backward_bias<double>(o);
  EXPECT_EQ(dbias.values[0], 1111);
}

TEST(Conv2d, ForwardAgreesWithFloat64) {
  for_each_conv_case([](const ConvCase& c, int threads, Write write) {
    auto x = random_operand(c.x(), 1), weight = random_operand(c.weight(), 2),
         bias = random_operand({c.g.out_channels}, 3);
    if (write == Write::kAdd) bias = {};  // here: the variant without
    auto y = nan_operand(c.y());
    Context context(threads, conv2d_scratch_bytes(c.g, c.n, DType::kF32, threads));
    conv2d_forward(context.context, {.geometry = c.g,
                                     .x = x.view(),
                                     .weight = weight.view(),
                                     .y = y.view(),
                                     .bias = bias.view()});
    const auto reference = [&](auto operand) {
      auto from = operand(x), by = operand(weight), plus = operand(bias), to = operand(y);
      reference::conv2d_forward<double>({.geometry = c.g,
                                         .x = from.view(),
                                         .weight = by.view(),
                                         .y = to.view(),
                                         .bias = plus.view()},
                                        0, c.n);
      return to.values;
    };
    EXPECT_EQ(difference(y.values, reference(widen), reference(wide_magnitudes)), "");
  });
}

TEST(Conv2d, BackwardDataAgreesWithFloat64) {
  for_each_conv_case([](const ConvCase& c, int threads, Write write) {
    auto dy = random_operand(c.y(), 1), weight = random_operand(c.weight(), 2);
    const auto before = output(c.x(), write);
    auto dx = before;
    Context context(threads, conv2d_scratch_bytes(c.g, c.n, DType::kF32, threads));
    conv2d_backward_data(context.context, {.geometry = c.g,
                                           .dy = dy.view(),
                                           .weight = weight.view(),
                                           .dx = dx.view(),
                                           .write = write});
    const auto reference = [&](auto operand) {
      auto from = operand(dy), by = operand(weight), to = start(operand(before), write);
      reference::conv2d_backward_data<double>({.geometry = c.g,
                                               .dy = from.view(),
                                               .weight = by.view(),
                                               .dx = to.view(),
                                               .write = write},
                                              0, c.n);
      return to.values;
    };
    EXPECT_EQ(difference(dx.values, reference(widen), reference(wide_magnitudes)), "");
  });
}

struct WeightGradients {
  std::vector<double> weight, bias;
};
WeightGradients reference_weights(const ConvCase& c, Operand<double> x, Operand<double> dy,
                                  Operand<double> dweight, Operand<double> dbias, Write write) {
  const Conv2dBackwardWeights o{.geometry = c.g,
                                .x = x.view(),
                                .dy = dy.view(),
                                .dweight = dweight.view(),
                                .dbias = dbias.view(),
                                .write = write};
  reference::conv2d_backward_weights<double>(o, 0, c.g.kernel_h * c.g.kernel_w * c.g.in_channels);
  reference::conv2d_backward_bias<double>(o);
  return {dweight.values, dbias.values};
}

TEST(Conv2d, BackwardWeightsAgreesWithFloat64) {
  for_each_conv_case([](const ConvCase& c, int threads, Write write) {
    auto x = random_operand(c.x(), 1), dy = random_operand(c.y(), 2);
    const auto before = output(c.weight(), write), bias_before = output({c.g.out_channels}, write);
    auto dweight = before, dbias = bias_before;
    Context context(threads, conv2d_scratch_bytes(c.g, c.n, DType::kF32, threads));
    conv2d_backward_weights(context.context, {.geometry = c.g,
                                              .x = x.view(),
                                              .dy = dy.view(),
                                              .dweight = dweight.view(),
                                              .dbias = dbias.view(),
                                              .write = write});
    const auto reference = [&](auto operand) {
      return reference_weights(c, operand(x), operand(dy), start(operand(before), write),
                               start(operand(bias_before), write), write);
    };
    const WeightGradients expected = reference(widen), bound = reference(wide_magnitudes);
    EXPECT_EQ(difference(dweight.values, expected.weight, bound.weight), "");
    EXPECT_EQ(difference(dbias.values, expected.bias, bound.bias), "");
  });
}

// 3 x 3 x 140 x 256 weights exceed what each thread sums privately: threads share the one gradient
// instead.
TEST(Conv2d, LargeWeightGradientAgreesWithFloat64) {
  const ConvCase c{2, {3, 3, 140, 256, 3, 3, 1, 1}};
  auto x = random_operand(c.x(), 1), dy = random_operand(c.y(), 2);
  const auto reference = [&](auto operand) {
    return reference_weights(c, operand(x), operand(dy), Operand<double>(c.weight(), 0),
                             Operand<double>({c.g.out_channels}, 0), Write::kOverwrite)
        .weight;
  };
  const std::vector<double> expected = reference(widen), bound = reference(wide_magnitudes);
  for (int threads = 1; threads <= 3; ++threads) {
    auto dweight = nan_operand(c.weight());
    Context context(threads, conv2d_scratch_bytes(c.g, c.n, DType::kF32, threads));
    conv2d_backward_weights(
        context.context,
        {.geometry = c.g, .x = x.view(), .dy = dy.view(), .dweight = dweight.view()});
    EXPECT_EQ(difference(dweight.values, expected, bound), "") << threads << " threads";
  }
}

TEST(Conv2d, TwoRunsGiveTheSameBits) {
  const ConvCase c{7, {9, 9, 17, 33, 3, 3, 1, 1}};
  auto x = random_operand(c.x(), 1), dy = random_operand(c.y(), 2),
       weight = random_operand(c.weight(), 3);
  std::vector<std::vector<float>> y, dx;
  for (int threads = 1; threads <= 3; ++threads) {
    std::vector<std::vector<float>> dweight;
    for (int run = 0; run < 2; ++run) {
      Context context(threads, conv2d_scratch_bytes(c.g, c.n, DType::kF32, threads));
      auto a = nan_operand(c.y()), b = nan_operand(c.x()), w = nan_operand(c.weight());
      conv2d_forward(context.context,
                     {.geometry = c.g, .x = x.view(), .weight = weight.view(), .y = a.view()});
      conv2d_backward_data(
          context.context,
          {.geometry = c.g, .dy = dy.view(), .weight = weight.view(), .dx = b.view()});
      conv2d_backward_weights(
          context.context, {.geometry = c.g, .x = x.view(), .dy = dy.view(), .dweight = w.view()});
      y.push_back(a.values), dx.push_back(b.values), dweight.push_back(w.values);
    }
    EXPECT_EQ(dweight[0], dweight[1]);
  }
  for (std::size_t i = 1; i < y.size(); ++i) {  // these two for any number of threads
    EXPECT_EQ(y[0], y[i]);
    EXPECT_EQ(dx[0], dx[i]);
  }
}

TEST(Conv2d, ScratchOfALargerBatchServesASmallerOne) {
  for (const ConvCase& c : cases()) {
    for (int threads = 1; threads <= 3; ++threads) {
      for (const DType dtype : {DType::kF32, DType::kF64}) {
        const std::size_t large = conv2d_scratch_bytes(c.g, 300, dtype, threads);
        for (const std::int64_t n : {0, 1, 2, 31, 299})
          EXPECT_LE(conv2d_scratch_bytes(c.g, n, dtype, threads), large);
      }
    }
  }
}

// The float64 kernels, which gradient checks and the comparison with PyTorch rest on, against the
// plain loops.
TEST(Conv2dF64, AgreesWithTheReference) {
  for_each_conv_case([](const ConvCase& c, int threads, Write write) {
    auto x = widen(random_operand(c.x(), 1)), weight = widen(random_operand(c.weight(), 2)),
         dy = widen(random_operand(c.y(), 3)), bias = widen(random_operand({c.g.out_channels}, 4));
    auto y = widen(nan_operand(c.y())), dx = widen(output(c.x(), write)),
         dweight = widen(output(c.weight(), write)),
         dbias = widen(output({c.g.out_channels}, write));
    auto expected_y = y, expected_dx = dx, expected_dweight = dweight, expected_dbias = dbias;
    if (write == Write::kAdd) bias = {};  // here: the variant without
    Context context(threads, conv2d_scratch_bytes(c.g, c.n, DType::kF64, threads));
    Conv2dForward forward{.geometry = c.g,
                          .x = x.view(),
                          .weight = weight.view(),
                          .y = y.view(),
                          .bias = bias.view()};
    Conv2dBackwardData data{
        .geometry = c.g, .dy = dy.view(), .weight = weight.view(), .dx = dx.view(), .write = write};
    Conv2dBackwardWeights weights{.geometry = c.g,
                                  .x = x.view(),
                                  .dy = dy.view(),
                                  .dweight = dweight.view(),
                                  .dbias = dbias.view(),
                                  .write = write};
    conv2d_forward(context.context, forward);
    conv2d_backward_data(context.context, data);
    conv2d_backward_weights(context.context, weights);

    forward.y = expected_y.view(), data.dx = expected_dx.view();
    weights.dweight = expected_dweight.view(), weights.dbias = expected_dbias.view();
    reference::conv2d_forward<double>(forward, 0, c.n);
    reference::conv2d_backward_data<double>(data, 0, c.n);
    reference::conv2d_backward_weights<double>(weights, 0,
                                               c.g.kernel_h * c.g.kernel_w * c.g.in_channels);
    reference::conv2d_backward_bias<double>(weights);
    const auto far = [](const Operand<double>& found, const Operand<double>& expected) {
      for (std::size_t i = 0; i < expected.values.size(); ++i)
        if (!(std::fabs(found.values[i] - expected.values[i]) <=
              1e-12 * (1 + std::fabs(expected.values[i]))))
          return "element " + std::to_string(i) + ": found " + std::to_string(found.values[i]) +
                 ", expected " + std::to_string(expected.values[i]);
      return std::string();
    };
    EXPECT_EQ(far(y, expected_y), "") << "forward";
    EXPECT_EQ(far(dx, expected_dx), "") << "backward to the input";
    EXPECT_EQ(far(dweight, expected_dweight), "") << "backward to the weights";
    EXPECT_EQ(far(dbias, expected_dbias), "") << "backward to the bias";
  });
}

TEST(Conv2d, RefusesOperandsThatDoNotFit) {
  const ConvCase c{2, {5, 5, 3, 4, 3, 3, 1, 1}};
  Context context(1, conv2d_scratch_bytes(c.g, c.n, DType::kF32, 1));
  auto x = random_operand(c.x(), 1), weight = random_operand(c.weight(), 2),
       y = random_operand(c.y(), 3);
  auto narrow = random_operand({2, 5, 4, 3}, 4), bias = random_operand({3}, 5);
  EXPECT_EQ(shape_error([&] {
              conv2d_forward(
                  context.context,
                  {.geometry = c.g, .x = narrow.view(), .weight = weight.view(), .y = y.view()});
            }),
            "conv2d_forward: x has the shape [2, 5, 4, 3], expected [2, 5, 5, 3]");
  EXPECT_EQ(shape_error([&] {
              conv2d_forward(context.context, {.geometry = c.g,
                                               .x = x.view(),
                                               .weight = weight.view(),
                                               .y = y.view(),
                                               .bias = bias.view()});
            }),
            "conv2d_forward: bias has the shape [3], expected [4]");
  EXPECT_EQ(shape_error([&] {
              conv2d_backward_data(
                  context.context,
                  {.geometry = c.g, .dy = narrow.view(), .weight = weight.view(), .dx = x.view()});
            }),
            "conv2d_backward_data: dy has the shape [2, 5, 4, 3], expected [2, "
            "5, 5, 4]");
  EXPECT_EQ(shape_error([&] {
              conv2d_backward_weights(
                  context.context,
                  {.geometry = c.g, .x = x.view(), .dy = y.view(), .dweight = y.view()});
            }),
            "conv2d_backward_weights: dweight has the shape [2, 5, 5, 4], "
            "expected [3, 3, 3, 4]");
  Conv2dGeometry none = c.g;
  none.kernel_h = 8;
  EXPECT_EQ(shape_error([&] {
              conv2d_forward(
                  context.context,
                  {.geometry = none, .x = x.view(), .weight = weight.view(), .y = y.view()});
            }),
            "conv2d_forward: no output for an input of [5, 5, 3] with a kernel "
            "of 8 x 3, stride 1, "
            "padding 1 and 4 output channels");
}

}  // namespace
}  // namespace engine::ops
