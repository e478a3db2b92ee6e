// Convolution kernels: the reference by hand, the fast ones against it at odd sizes on every
// instruction set, what is refused.
#include "engine/ops/conv2d/conv2d.h"

#include <gtest/gtest.h>

#include <functional>

#include "engine/ops/conv2d/conv2d_reference.h"
#include "tests/engine/ops/gemm/gemm_test_support.h"

namespace engine::ops {
namespace {

using gemm_test::Context;
using gemm_test::difference;
using gemm_test::magnitudes;
using gemm_test::nan_operand;
using gemm_test::Operand;
using gemm_test::random_operand;
using gemm_test::widened;

struct Case {
  std::int64_t n;
  Conv2dGeometry g;
  Shape x() const { return {n, g.in_h, g.in_w, g.in_channels}; }
  Shape y() const { return {n, g.out_h(), g.out_w(), g.out_channels}; }
  Shape weight() const { return {g.kernel_h, g.kernel_w, g.in_channels, g.out_channels}; }
};

std::string to_string(const Case& c, int threads, Write write) {
  return "n " + std::to_string(c.n) + " map " + std::to_string(c.g.in_h) + "x" +
         std::to_string(c.g.in_w) + " channels " + std::to_string(c.g.in_channels) + " -> " +
         std::to_string(c.g.out_channels) + " kernel " + std::to_string(c.g.kernel_h) + "x" +
         std::to_string(c.g.kernel_w) + " stride " + std::to_string(c.g.stride) + " padding " +
         std::to_string(c.g.padding) + " threads " + std::to_string(threads) +
         (write == Write::kAdd ? " add" : "");
}

// Every combination of kernel, stride and padding that has an output, with map, channels and batch
// going round.
std::vector<Case> cases() {
  const std::int64_t channels[] = {1, 3, 7, 16, 17, 33, 64}, maps[] = {1, 2, 3, 4, 5, 7, 8, 9},
                     batches[] = {1, 3, 2, 7};
  std::vector<Case> all;
  std::size_t turn = 0;
  for (const std::int64_t kernel : {1, 2, 3, 5}) {
    for (const std::int64_t stride : {1, 2, 3}) {
      for (std::int64_t padding = 0; padding <= 2; ++padding) {
        for (int variant = 0; variant < 4; ++variant, ++turn) {
          Case c{batches[turn % 4],
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
  all.push_back(
      {3, {4, 4, 130, 20, 3, 3, 1, 1}});  // one kernel row exceeds a chunk, in both directions
  all.push_back({2, {6, 5, 20, 130, 3, 3, 2, 1}});
  all.push_back({2, {13, 10, 3, 17, 7, 7, 2, 3}});  // the first layer of networks for large images
  all.push_back({2, {7, 6, 5, 9, 3, 2, 2, 1}});     // a kernel that is not square
  all.push_back({2, {9, 9, 3, 4, 5, 5, 5, 2}});     // a stride without a fast kernel
  return all;
}

// Calls check(case, threads, write) on every instruction set.
void for_each_case(const std::function<void(const Case&, int, Write)>& check) {
  int turn = 0;
  for (const CpuIsa isa : gemm_test::isas_here()) {
    const gemm_test::ScopedIsa scope(isa);
    for (const Case& c : cases()) {
      const int threads = 1 + turn++ % 3;
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(std::string(to_string(isa)) + " " + to_string(c, threads, write));
        check(c, threads, write);
      }
    }
  }
}

Operand<float> output(const Shape& shape, Write write) {
  return write == Write::kAdd ? random_operand(shape, 9) : nan_operand(shape);
}
std::vector<double> start_of(const Operand<float>& operand, Write write) {
  return write == Write::kAdd ? widened(operand) : std::vector<double>(operand.values.size(), 0.0);
}
std::vector<double> start_magnitude(const Operand<float>& operand, Write write) {
  return write == Write::kAdd ? magnitudes(operand)
                              : std::vector<double>(operand.values.size(), 0.0);
}

TEST(Conv2dReference, AgreesWithAConvolutionByHand) {
  // 3 x 3 map of 1..9, one channel; kernel 2 x 2 = [1 2; 3 4]; stride 2, padding 1: the outputs see
  // the corners.
  const Conv2dGeometry g{3, 3, 1, 1, 2, 2, 2, 1};
  const double x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, weight[] = {1, 2, 3, 4}, bias[] = {100};
  double y[4];
  conv2d_forward_reference(g, 0, 1, x, weight, bias, y);
  EXPECT_EQ(std::vector<double>(y, y + 4), (std::vector<double>{104, 118, 136, 177}));
  const double dy[] = {1, 10, 100, 1000};
  double dx[9], dweight[4], dbias[1];
  conv2d_backward_data_reference(g, 0, 1, dy, weight, dx, Write::kOverwrite);
  EXPECT_EQ(std::vector<double>(dx, dx + 9),
            (std::vector<double>{4, 30, 40, 200, 1000, 2000, 400, 3000, 4000}));
  conv2d_backward_weights_reference(g, 0, 4, 1, x, dy, dweight, Write::kOverwrite);
  EXPECT_EQ(std::vector<double>(dweight, dweight + 4),
            (std::vector<double>{5000, 6400, 8020, 9731}));
  conv2d_backward_bias_reference(4, 1, dy, dbias, Write::kOverwrite);
  EXPECT_EQ(dbias[0], 1111);
}

TEST(Conv2d, ForwardAgreesWithFloat64) {
  for_each_case([](const Case& c, int threads, Write write) {
    auto x = random_operand(c.x(), 1), weight = random_operand(c.weight(), 2),
         bias = random_operand({c.g.out_channels}, 3);
    if (write == Write::kAdd) bias = {};  // here: the variant without
    auto y = nan_operand(c.y());
    Context context(threads, conv2d_scratch_bytes(c.g, c.n, DType::kF32, threads));
    conv2d_forward(context.context, c.g, x.view(), weight.view(), bias.view(), y.view());
    std::vector<double> expected(y.values.size()), magnitude(y.values.size());
    const auto bias64 = widened(bias), bias_magnitude = magnitudes(bias);
    conv2d_forward_reference<double>(c.g, 0, c.n, widened(x).data(), widened(weight).data(),
                                     bias64.empty() ? nullptr : bias64.data(), expected.data());
    conv2d_forward_reference<double>(c.g, 0, c.n, magnitudes(x).data(), magnitudes(weight).data(),
                                     bias64.empty() ? nullptr : bias_magnitude.data(),
                                     magnitude.data());
    EXPECT_EQ(difference(y.values, expected, magnitude), "");
  });
}

TEST(Conv2d, BackwardDataAgreesWithFloat64) {
  for_each_case([](const Case& c, int threads, Write write) {
    auto dy = random_operand(c.y(), 1), weight = random_operand(c.weight(), 2);
    auto dx = output(c.x(), write);
    auto expected = start_of(dx, write), magnitude = start_magnitude(dx, write);
    Context context(threads, conv2d_scratch_bytes(c.g, c.n, DType::kF32, threads));
    conv2d_backward_data(context.context, c.g, dy.view(), weight.view(), dx.view(), write);
    conv2d_backward_data_reference<double>(c.g, 0, c.n, widened(dy).data(), widened(weight).data(),
                                           expected.data(), write);
    conv2d_backward_data_reference<double>(c.g, 0, c.n, magnitudes(dy).data(),
                                           magnitudes(weight).data(), magnitude.data(), write);
    EXPECT_EQ(difference(dx.values, expected, magnitude), "");
  });
}

TEST(Conv2d, BackwardWeightsAgreesWithFloat64) {
  for_each_case([](const Case& c, int threads, Write write) {
    const std::int64_t rows = c.g.kernel_h * c.g.kernel_w * c.g.in_channels,
                       places = c.n * c.g.out_h() * c.g.out_w();
    auto x = random_operand(c.x(), 1), dy = random_operand(c.y(), 2);
    auto dweight = output(c.weight(), write), dbias = output({c.g.out_channels}, write);
    auto expected = start_of(dweight, write), magnitude = start_magnitude(dweight, write);
    auto expected_bias = start_of(dbias, write), bias_magnitude = start_magnitude(dbias, write);
    Context context(threads, conv2d_scratch_bytes(c.g, c.n, DType::kF32, threads));
    conv2d_backward_weights(context.context, c.g, x.view(), dy.view(), dweight.view(), dbias.view(),
                            write);
    conv2d_backward_weights_reference<double>(c.g, 0, rows, c.n, widened(x).data(),
                                              widened(dy).data(), expected.data(), write);
    conv2d_backward_weights_reference<double>(c.g, 0, rows, c.n, magnitudes(x).data(),
                                              magnitudes(dy).data(), magnitude.data(), write);
    conv2d_backward_bias_reference<double>(places, c.g.out_channels, widened(dy).data(),
                                           expected_bias.data(), write);
    conv2d_backward_bias_reference<double>(places, c.g.out_channels, magnitudes(dy).data(),
                                           bias_magnitude.data(), write);
    EXPECT_EQ(difference(dweight.values, expected, magnitude), "");
    EXPECT_EQ(difference(dbias.values, expected_bias, bias_magnitude), "");
  });
}

// 3 x 3 x 140 x 256 weights exceed what each thread sums privately: threads share the one gradient
// instead.
TEST(Conv2d, LargeWeightGradientAgreesWithFloat64) {
  const Case c{2, {3, 3, 140, 256, 3, 3, 1, 1}};
  auto x = random_operand(c.x(), 1), dy = random_operand(c.y(), 2);
  std::vector<double> expected(static_cast<std::size_t>(c.weight().count())),
      magnitude(expected.size());
  conv2d_backward_weights_reference<double>(c.g, 0, 9 * 140, c.n, widened(x).data(),
                                            widened(dy).data(), expected.data(), Write::kOverwrite);
  conv2d_backward_weights_reference<double>(c.g, 0, 9 * 140, c.n, magnitudes(x).data(),
                                            magnitudes(dy).data(), magnitude.data(),
                                            Write::kOverwrite);
  for (int threads = 1; threads <= 3; ++threads) {
    auto dweight = nan_operand(c.weight());
    Context context(threads, conv2d_scratch_bytes(c.g, c.n, DType::kF32, threads));
    conv2d_backward_weights(context.context, c.g, x.view(), dy.view(), dweight.view(), {},
                            Write::kOverwrite);
    EXPECT_EQ(difference(dweight.values, expected, magnitude), "") << threads << " threads";
  }
}

TEST(Conv2d, TwoRunsGiveTheSameBits) {
  const Case c{7, {9, 9, 17, 33, 3, 3, 1, 1}};
  auto x = random_operand(c.x(), 1), dy = random_operand(c.y(), 2),
       weight = random_operand(c.weight(), 3);
  std::vector<std::vector<float>> y, dx;
  for (int threads = 1; threads <= 3; ++threads) {
    std::vector<std::vector<float>> dweight;
    for (int run = 0; run < 2; ++run) {
      Context context(threads, conv2d_scratch_bytes(c.g, c.n, DType::kF32, threads));
      auto a = nan_operand(c.y()), b = nan_operand(c.x()), w = nan_operand(c.weight());
      conv2d_forward(context.context, c.g, x.view(), weight.view(), {}, a.view());
      conv2d_backward_data(context.context, c.g, dy.view(), weight.view(), b.view(),
                           Write::kOverwrite);
      conv2d_backward_weights(context.context, c.g, x.view(), dy.view(), w.view(), {},
                              Write::kOverwrite);
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
  for (const Case& c : cases()) {
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
  for_each_case([](const Case& c, int threads, Write write) {
    const auto wide = [](const Operand<float>& narrow) {
      Operand<double> operand(narrow.shape, 0);
      operand.values.assign(narrow.values.begin(), narrow.values.end());
      return operand;
    };
    auto x = wide(random_operand(c.x(), 1)), weight = wide(random_operand(c.weight(), 2)),
         dy = wide(random_operand(c.y(), 3)), bias = wide(random_operand({c.g.out_channels}, 4));
    auto y = wide(nan_operand(c.y())), dx = wide(output(c.x(), write)),
         dweight = wide(output(c.weight(), write)), dbias = wide(output({c.g.out_channels}, write));
    auto expected_y = y, expected_dx = dx, expected_dweight = dweight, expected_dbias = dbias;
    if (write == Write::kAdd) bias = {};  // here: the variant without
    Context context(threads, conv2d_scratch_bytes(c.g, c.n, DType::kF64, threads));
    conv2d_forward(context.context, c.g, x.view(), weight.view(), bias.view(), y.view());
    conv2d_backward_data(context.context, c.g, dy.view(), weight.view(), dx.view(), write);
    conv2d_backward_weights(context.context, c.g, x.view(), dy.view(), dweight.view(), dbias.view(),
                            write);

    const std::int64_t rows = c.g.kernel_h * c.g.kernel_w * c.g.in_channels,
                       places = c.n * c.g.out_h() * c.g.out_w();
    conv2d_forward_reference(c.g, 0, c.n, x.values.data(), weight.values.data(),
                             bias.values.empty() ? nullptr : bias.values.data(),
                             expected_y.values.data());
    conv2d_backward_data_reference(c.g, 0, c.n, dy.values.data(), weight.values.data(),
                                   expected_dx.values.data(), write);
    conv2d_backward_weights_reference(c.g, 0, rows, c.n, x.values.data(), dy.values.data(),
                                      expected_dweight.values.data(), write);
    conv2d_backward_bias_reference(places, c.g.out_channels, dy.values.data(),
                                   expected_dbias.values.data(), write);
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

std::string shape_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const ShapeError& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(Conv2d, RefusesOperandsThatDoNotFit) {
  const Case c{2, {5, 5, 3, 4, 3, 3, 1, 1}};
  Context context(1, conv2d_scratch_bytes(c.g, c.n, DType::kF32, 1));
  auto x = random_operand(c.x(), 1), weight = random_operand(c.weight(), 2),
       y = random_operand(c.y(), 3);
  auto narrow = random_operand({2, 5, 4, 3}, 4), bias = random_operand({3}, 5);
  EXPECT_EQ(shape_error([&] {
              conv2d_forward(context.context, c.g, narrow.view(), weight.view(), {}, y.view());
            }),
            "conv2d_forward: x has the shape [2, 5, 4, 3], expected [2, 5, 5, 3]");
  EXPECT_EQ(shape_error([&] {
              conv2d_forward(context.context, c.g, x.view(), weight.view(), bias.view(), y.view());
            }),
            "conv2d_forward: bias has the shape [3], expected [4]");
  EXPECT_EQ(shape_error([&] {
              conv2d_backward_data(context.context, c.g, narrow.view(), weight.view(), x.view(),
                                   Write::kAdd);
            }),
            "conv2d_backward_data: dy has the shape [2, 5, 4, 3], expected [2, 5, 5, 4]");
  EXPECT_EQ(shape_error([&] {
              conv2d_backward_weights(context.context, c.g, x.view(), y.view(), y.view(), {},
                                      Write::kAdd);
            }),
            "conv2d_backward_weights: dweight has the shape [2, 5, 5, 4], expected [3, 3, 3, 4]");
  Conv2dGeometry none = c.g;
  none.kernel_h = 8;
  EXPECT_EQ(shape_error([&] {
              conv2d_forward(context.context, none, x.view(), weight.view(), {}, y.view());
            }),
            "conv2d_forward: no output for an input of [5, 5, 3] with a kernel of 8 x 3, stride 1, "
            "padding 1 and 4 output channels");
}

}  // namespace
}  // namespace engine::ops
