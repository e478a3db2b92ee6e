// Convolution kernels: the reference by hand, the fast ones against it at odd sizes on every
// instruction set, what is refused.
#include "engine/ops/conv2d/conv2d.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "tests/engine/ops/common/products.h"
#include "tests/engine/ops/conv2d/grouped_cases.h"
#include "tests/support/expect_contains.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

// Every combination of kernel, stride and padding that has an output, with map, channels and batch
// going round.
std::vector<ConvProduct> conv_cases() {
  const std::int64_t channels[] = {1, 3, 7, 16, 17, 33, 64}, maps[] = {1, 2, 3, 4, 5, 7, 8, 9},
                     batches[] = {1, 3, 2, 7};
  std::vector<ConvProduct> all;
  std::size_t turn = 0;
  for (const std::int64_t kernel : {1, 2, 3, 5}) {
    for (const std::int64_t stride : {1, 2, 3}) {
      for (std::int64_t padding = 0; padding <= 2; ++padding) {
        for (int variant = 0; variant < 4; ++variant, ++turn) {
          ConvProduct c{batches[turn % 4],
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

std::vector<ConvProduct> all_cases() {
  std::vector<ConvProduct> all = conv_cases();
  std::ranges::copy(grouped_cases(), std::back_inserter(all));
  for (const std::int64_t stride : {1, 2})  // groups in several blocks of rows of an image
    for (const std::int64_t groups : {2, 8})
      all.push_back({2, {37, 64, 64, 64, 3, 3, stride, 1, groups}});
  return all;
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

// torch.nn.functional.conv2d(x, w, padding=1, groups=2) of x = 1 ... 8, [1, 2, 2, 2], and
// w = 1 ... 18, [2, 1, 3, 3]; the gradients for dy = x by their definition.
TEST(Conv2dReference, OfGroupsIsPyTorchs) {
  const ConvProduct c{1, {2, 2, 2, 2, 3, 3, 1, 1, 2}};
  auto pixels = operand_of<double>({1, 2, 2, 2}, {1, 5, 2, 6, 3, 7, 4, 8});
  WideProduct o{.write = Write::kOverwrite,
                .with_bias = true,
                .relu = false,
                .x = pixels,
                .dy = pixels,
                .y = pixels,
                .dx = pixels,
                .weight = Operand<double>({3, 3, 1, 2}, 0),
                .bias = operand_of<double>({2}, {0, 0}),
                .dweight = Operand<double>({3, 3, 1, 2}, 0),
                .dbias = operand_of<double>({2}, {0, 0})};
  for (std::size_t i = 0; i < 18; ++i)
    o.weight.values[i % 9 * 2 + i / 9] = static_cast<double>(i + 1);
  c.run_reference(o);
  EXPECT_EQ(o.y.values, (std::vector<double>{77, 423, 67, 397, 47, 345, 37, 319}));
  EXPECT_EQ(o.dx.values, (std::vector<double>{23, 305, 33, 331, 53, 383, 63, 409}));
  EXPECT_EQ(o.dweight.values, (std::vector<double>{4, 40, 11, 83, 6, 42, 14, 86, 30, 174, 14, 86, 6,
                                                   42, 11, 83, 4, 40}));
  EXPECT_EQ(o.dbias.values, (std::vector<double>{10, 26}));
}

// body(x index, weight index, y index) for each product of the sums that define y.
template <class Body>
void for_each_term(const ConvProduct& c, Body body) {
  const Conv2dGeometry& g = c.g;
  const std::int64_t ins = g.in_channels / g.groups, outs = g.out_channels / g.groups;
  for (std::int64_t e = 0; e < c.y().count(); ++e) {
    const std::int64_t o = e % g.out_channels, pixel = e / g.out_channels, ox = pixel % g.out_w(),
                       oy = pixel / g.out_w() % g.out_h(), image = pixel / g.out_w() / g.out_h();
    for (std::int64_t t = 0; t < c.taps(); ++t) {
      const std::int64_t i = t % ins, ix = ox * g.stride - g.padding + t / ins % g.kernel_w,
                         iy = oy * g.stride - g.padding + t / ins / g.kernel_w;
      if (iy < 0 || iy >= g.in_h || ix < 0 || ix >= g.in_w) continue;
      const std::int64_t at =
          ((image * g.in_h + iy) * g.in_w + ix) * g.in_channels + o / outs * ins + i;
      body(static_cast<std::size_t>(at), static_cast<std::size_t>(t * g.out_channels + o),
           static_cast<std::size_t>(e));
    }
  }
}

TEST(Conv2dReference, OfGroupsIsItsDefinition) {
  for (const ConvProduct& c : grouped_cases()) {
    SCOPED_TRACE(c.text());
    WideProduct o = operands_of(c, Write::kOverwrite).as(widen, widen, widen);
    c.run_reference(o);
    std::vector<double> y(o.y.values.size()), dx(o.dx.values.size()),
        dweight(o.dweight.values.size());
    for (std::size_t e = 0; e < y.size(); ++e) y[e] = o.bias.values[e % o.bias.values.size()];
    for_each_term(c, [&](std::size_t at, std::size_t tap, std::size_t e) {
      y[e] += o.x.values[at] * o.weight.values[tap];
      dx[at] += o.dy.values[e] * o.weight.values[tap];
      dweight[tap] += o.dy.values[e] * o.x.values[at];
    });
    EXPECT_EQ(far_apart(o.y.values, y, 1e-12, 1e-12), "");
    EXPECT_EQ(far_apart(o.dx.values, dx, 1e-12, 1e-12), "");
    EXPECT_EQ(far_apart(o.dweight.values, dweight, 1e-12, 1e-12), "");
  }
}

// Also the float64 kernels, which gradient checks and the comparison with PyTorch rest on.
TEST(Conv2d, AgreesWithFloat64) {
  int turn = 0;
  for (const CpuIsa isa : gemm_test::isas_here()) {
    const gemm_test::ScopedIsa scope(isa);
    for (const ConvProduct& c : all_cases()) {
      const int threads = 1 + turn++ % 3;
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(std::string(to_string(isa)) + " " + c.text() + ", " + std::to_string(threads) +
                     " threads" + (write == Write::kAdd ? ", add" : ""));
        expect_float64_products(c, write, threads);
      }
    }
  }
}

// 3 x 3 x 140 x 256 weights exceed what each thread sums privately: threads share the one gradient
// instead.
TEST(Conv2d, LargeWeightGradientAgreesWithFloat64) {
  for (int threads = 1; threads <= 3; ++threads)
    expect_float64_products(ConvProduct{2, {3, 3, 140, 256, 3, 3, 1, 1}}, Write::kOverwrite,
                            threads);
}

// `threads` compute c's three results from random operands.
HostProduct results_of(const ConvProduct& c, int threads) {
  HostProduct o = operands_of(c, Write::kOverwrite);
  Context context(threads, c.scratch(threads, DType::kF32));
  c.run(context.context, o);
  return o;
}

TEST(Conv2d, TwoRunsGiveTheSameBits) {
  const ConvProduct c{7, {9, 9, 17, 33, 3, 3, 1, 1}};
  expect_same_bits([&](int threads) { return results_of(c, threads); }, {1, 2, 3}, false);
}

TEST(Conv2d, OfGroupsHasTheSameBitsForAnyThreads) {
  for (const CpuIsa isa : gemm_test::isas_here()) {
    const gemm_test::ScopedIsa scope(isa);
    for (const ConvProduct& c : {ConvProduct{9, {11, 13, 20, 20, 3, 3, 2, 1, 20}},
                                 ConvProduct{3, {29, 50, 40, 40, 3, 3, 1, 1, 5}},
                                 ConvProduct{2, {6, 7, 130, 130, 3, 3, 2, 1, 2}},
                                 ConvProduct{5, {9, 8, 24, 48, 5, 5, 1, 2, 3}}})
      expect_same_bits([&](int threads) { return results_of(c, threads); }, {2, 3, 7}, true);
  }
}

TEST(Conv2d, ScratchOfALargerBatchServesASmallerOne) {
  for (const ConvProduct& c : all_cases())
    for (int threads = 1; threads <= 3; ++threads)
      for (const DType dtype : {DType::kF32, DType::kF64}) {
        SCOPED_TRACE(c.text() + ", " + std::to_string(threads) + " threads");
        expect_growing_scratch(300, [&](std::int64_t n) {
          return ConvProduct{n, c.g}.scratch(threads, dtype);
        });
      }
}

TEST(Conv2d, RefusesOperandsThatDoNotFit) {
  const ConvProduct c{2, {5, 5, 3, 4, 3, 3, 1, 1}};
  Context context(1, c.scratch(1, DType::kF32));
  const HostProduct right = operands_of(c, Write::kOverwrite);
  const auto error_of = [&](const ConvProduct& product, auto change) {
    HostProduct o = right;
    change(o);
    return shape_error([&] { product.run(context.context, o); });
  };
  const Operand<float> narrow({2, 5, 4, 3}, 0);
  EXPECT_VALUES(error_of(c, [&](HostProduct& o) { o.x = narrow; }),
                "conv2d_forward: x [2, 5, 4, 3] [2, 5, 5, 3]");
  EXPECT_VALUES(error_of(c, [&](HostProduct& o) { o.bias = Operand<float>({3}, 0); }),
                "conv2d_forward: bias [3], [4]");
  EXPECT_EQ(error_of(c, [&](HostProduct& o) { o.dy = narrow; }),
            "conv2d_backward_data: dy has the shape [2, 5, 4, 3], expected [2, 5, 5, 4]");
  EXPECT_EQ(error_of(c, [&](HostProduct& o) { o.dweight = o.y; }),
            "conv2d_backward_weights: dweight has the shape [2, 5, 5, 4], expected [3, 3, 3, 4]");
  EXPECT_VALUES(error_of({2, {5, 5, 3, 4, 8, 3, 1, 1}}, [](HostProduct&) {}),
                "conv2d_forward: [5, 5, 3] 8 x 3, stride 1, padding 1 4 output channels");
  EXPECT_VALUES(error_of({2, {5, 5, 3, 4, 3, 3, 1, 1, 2}}, [](HostProduct&) {}),
                "conv2d_forward: [5, 5, 3] 3 x 3, stride 1, padding 1 4 output channels 2 groups");
}

}  // namespace
}  // namespace engine::ops
