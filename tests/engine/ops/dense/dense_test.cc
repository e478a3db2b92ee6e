// Dense kernels: the reference by hand, the fast ones against it at odd sizes on every instruction
// set, and what is refused.
#include "engine/ops/dense/dense.h"

#include <gtest/gtest.h>

#include <functional>

#include "engine/ops/dense/dense_reference.h"
#include "tests/engine/ops/common/kernel_test_support.h"

namespace engine::ops {
namespace {

using namespace kernel_test;
using gemm_test::difference;
using gemm_test::nan_operand;
using gemm_test::wide_magnitudes;
using gemm_test::widened;

struct DenseSizes {
  std::int64_t n, in, out;
};

// Every tail of the tiles (rows 1..14, columns 1..32), sums of several chunks, and more rows than
// one block.
const DenseSizes kDenseSizes[] = {{0, 3, 5},    {1, 1, 1},     {1, 7, 10},    {3, 17, 16},
                                  {5, 16, 33},  {7, 64, 31},   {13, 257, 15}, {14, 33, 8},
                                  {29, 9, 64},  {100, 50, 10}, {97, 300, 40}, {200, 65, 47},
                                  {385, 20, 3}, {300, 530, 70}};

std::string dense_name(CpuIsa isa, const DenseSizes& s, int threads, Write write) {
  return std::string(to_string(isa)) + " n " + std::to_string(s.n) + " in " + std::to_string(s.in) +
         " out " + std::to_string(s.out) + " threads " + std::to_string(threads) +
         (write == Write::kAdd ? " add" : "");
}

// Calls check(isa, sizes, threads, write) for all of them.
template <class Check>
void for_each_dense_case(Check check) {
  for (const CpuIsa isa : gemm_test::isas_here()) {
    const gemm_test::ScopedIsa scope(isa);
    for (const DenseSizes& s : kDenseSizes) {
      for (int threads = 1; threads <= 3; ++threads) {
        for (const Write write : {Write::kOverwrite, Write::kAdd}) {
          SCOPED_TRACE(dense_name(isa, s, threads, write));
          check(s, threads, write);
        }
      }
    }
  }
}

// What the reference adds to.
std::vector<double> start_of(const Operand<float>& operand, Write write) {
  return write == Write::kAdd ? widened(operand) : std::vector<double>(operand.values.size(), 0.0);
}

TEST(DenseReference, AgreesWithAProductByHand) {
  using Values = std::vector<double>;
  auto x = operand_of<double>({2, 2}, {1, 2, 3, 4}),
       weight = operand_of<double>({3, 2}, {1, 0, 2, -1, 0.5, 0.5}),
       bias = operand_of<double>({3}, {10, 20, -30}),
       dy = operand_of<double>({2, 3}, {1, 2, 3, 0, -1, 1});
  Operand<double> y({2, 3}, 0), dx({2, 2}, 0), dweight({3, 2}, 0), dbias({3}, 0);
  reference::dense_forward<double>(
      {.x = x.view(), .weight = weight.view(), .bias = bias.view(), .y = y.view()});
  EXPECT_EQ(y.values, (Values{11, 20, -28.5, 13, 22, -26.5}));
  reference::dense_forward<double>(
      {.x = x.view(), .weight = weight.view(), .relu = true, .y = y.view()});
  EXPECT_EQ(y.values, (Values{1, 0, 1.5, 3, 2, 3.5}));
  reference::dense_backward_data<double>(
      {.dy = dy.view(), .weight = weight.view(), .dx = dx.view()});
  EXPECT_EQ(dx.values, (Values{6.5, -0.5, -1.5, 1.5}));
  DenseBackwardWeights backward{
      .x = x.view(), .dy = dy.view(), .dweight = dweight.view(), .dbias = dbias.view()};
  reference::dense_backward_weights<double>(backward);
  EXPECT_EQ(dweight.values, (Values{1, 2, -1, 0, 6, 10}));
  EXPECT_EQ(dbias.values, (Values{1, 1, 4}));
  backward.write = Write::kAdd;
  reference::dense_backward_weights<double>(backward);
  EXPECT_EQ(dweight.values, (Values{2, 4, -2, 0, 12, 20}));
}

TEST(DenseCheck, FailsOnNanAndOnAWrongValue) {
  EXPECT_EQ(difference({1.f}, {1.0}, {1.0}), "");
  EXPECT_NE(difference({std::numeric_limits<float>::quiet_NaN()}, {1.0}, {1.0}), "");
  EXPECT_NE(difference({1.f}, {std::nan("")}, {1.0}), "");
  EXPECT_NE(difference({1.0001f}, {1.0}, {1.0}), "");
}

TEST(Dense, ForwardAgreesWithFloat64) {
  for_each_dense_case([](const DenseSizes& s, int threads, Write write) {
    const bool with_bias = write == Write::kOverwrite;  // here: a second variant
    auto x = random_operand({s.n, s.in}, 1), weight = random_operand({s.out, s.in}, 2),
         bias = random_operand({s.out}, 3);
    if (!with_bias) bias = {};
    auto y = nan_operand({s.n, s.out});
    Context c(threads, dense_scratch_bytes(s.n, s.in, s.out, DType::kF32, threads));
    dense_forward(c.context, {.x = x.view(),
                              .weight = weight.view(),
                              .bias = bias.view(),
                              .relu = !with_bias,
                              .y = y.view()});
    Operand<double> expected({s.n, s.out}, 0), magnitude({s.n, s.out}, 0);
    reference::dense_forward<double>({.x = widen(x).view(),
                                      .weight = widen(weight).view(),
                                      .bias = with_bias ? widen(bias).view() : TensorView{},
                                      .relu = !with_bias,
                                      .y = expected.view()});
    reference::dense_forward<double>(
        {.x = wide_magnitudes(x).view(),
         .weight = wide_magnitudes(weight).view(),
         .bias = with_bias ? wide_magnitudes(bias).view() : TensorView{},
         .y = magnitude.view()});
    EXPECT_EQ(difference(y.values, expected.values, magnitude.values), "");
  });
}

TEST(Dense, BackwardDataAgreesWithFloat64) {
  for_each_dense_case([](const DenseSizes& s, int threads, Write write) {
    auto dy = random_operand({s.n, s.out}, 1), weight = random_operand({s.out, s.in}, 2);
    auto dx = output({s.n, s.in}, write);
    Operand<double> expected = operand_of<double>(dx.shape, start_of(dx, write)),
                    magnitude = write == Write::kAdd ? wide_magnitudes(dx) : expected;
    Context c(threads, dense_scratch_bytes(s.n, s.in, s.out, DType::kF32, threads));
    dense_backward_data(
        c.context, {.dy = dy.view(), .weight = weight.view(), .dx = dx.view(), .write = write});
    reference::dense_backward_data<double>({.dy = widen(dy).view(),
                                            .weight = widen(weight).view(),
                                            .dx = expected.view(),
                                            .write = write});
    reference::dense_backward_data<double>({.dy = wide_magnitudes(dy).view(),
                                            .weight = wide_magnitudes(weight).view(),
                                            .dx = magnitude.view(),
                                            .write = write});
    EXPECT_EQ(difference(dx.values, expected.values, magnitude.values), "");
  });
}

TEST(Dense, BackwardWeightsAgreesWithFloat64) {
  for_each_dense_case([](const DenseSizes& s, int threads, Write write) {
    auto x = random_operand({s.n, s.in}, 1), dy = random_operand({s.n, s.out}, 2);
    auto dweight = output({s.out, s.in}, write), dbias = output({s.out}, write);
    Operand<double> expected = operand_of<double>(dweight.shape, start_of(dweight, write)),
                    magnitude = write == Write::kAdd ? wide_magnitudes(dweight) : expected,
                    expected_bias = operand_of<double>(dbias.shape, start_of(dbias, write)),
                    bias_magnitude = write == Write::kAdd ? wide_magnitudes(dbias) : expected_bias;
    Context c(threads, dense_scratch_bytes(s.n, s.in, s.out, DType::kF32, threads));
    dense_backward_weights(c.context, {.x = x.view(),
                                       .dy = dy.view(),
                                       .dweight = dweight.view(),
                                       .dbias = dbias.view(),
                                       .write = write});
    reference::dense_backward_weights<double>({.x = widen(x).view(),
                                               .dy = widen(dy).view(),
                                               .dweight = expected.view(),
                                               .dbias = expected_bias.view(),
                                               .write = write});
    reference::dense_backward_weights<double>({.x = wide_magnitudes(x).view(),
                                               .dy = wide_magnitudes(dy).view(),
                                               .dweight = magnitude.view(),
                                               .dbias = bias_magnitude.view(),
                                               .write = write});
    EXPECT_EQ(difference(dweight.values, expected.values, magnitude.values), "");
    EXPECT_EQ(difference(dbias.values, expected_bias.values, bias_magnitude.values), "");
  });
}

TEST(Dense, BitsDoNotDependOnThreads) {
  for (const DenseSizes& s : kDenseSizes) {
    auto x = random_operand({s.n, s.in}, 1), dy = random_operand({s.n, s.out}, 2),
         weight = random_operand({s.out, s.in}, 3);
    std::vector<std::vector<float>> y, dx, dweight;
    for (int threads = 1; threads <= 3; ++threads) {
      Context c(threads, dense_scratch_bytes(s.n, s.in, s.out, DType::kF32, threads));
      auto a = nan_operand({s.n, s.out}), b = nan_operand({s.n, s.in}),
           w = nan_operand({s.out, s.in});
      dense_forward(c.context, {.x = x.view(), .weight = weight.view(), .y = a.view()});
      dense_backward_data(
          c.context,
          {.dy = dy.view(), .weight = weight.view(), .dx = b.view(), .write = Write::kOverwrite});
      dense_backward_weights(
          c.context,
          {.x = x.view(), .dy = dy.view(), .dweight = w.view(), .write = Write::kOverwrite});
      y.push_back(a.values), dx.push_back(b.values), dweight.push_back(w.values);
    }
    for (int t = 1; t < 3; ++t) {
      EXPECT_EQ(y[0], y[t]);
      EXPECT_EQ(dx[0], dx[t]);
      EXPECT_EQ(dweight[0], dweight[t]);
    }
  }
}

TEST(Dense, ScratchOfALargerBatchServesASmallerOne) {
  Context c(2, dense_scratch_bytes(300, 20, 30, DType::kF32, 2));
  for (const std::int64_t n : {0, 1, 191, 193, 300})
    EXPECT_LE(dense_scratch_bytes(n, 20, 30, DType::kF32, 2), c.memory.bytes());
}

// What is within 1e-12 of the loops, relative to the sum of the magnitudes of the terms.
std::string far_from(const std::vector<double>& found, const std::vector<double>& expected,
                     double terms) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (!(std::fabs(found[i] - expected[i]) <= 1e-12 * (1 + terms)))
      return "element " + std::to_string(i) + ": found " + std::to_string(found[i]) +
             ", expected " + std::to_string(expected[i]);
  return found.size() == expected.size() ? "" : "sizes differ";
}

TEST(Dense, Float64AgreesWithTheLoops) {
  for_each_dense_case([](const DenseSizes& s, int threads, Write write) {
    const bool plain = write == Write::kAdd;  // without bias and ReLU
    auto x = widen(random_operand({s.n, s.in}, 1)),
         weight = widen(random_operand({s.out, s.in}, 2)),
         dy = widen(random_operand({s.n, s.out}, 3)), bias = widen(random_operand({s.out}, 4));
    if (plain) bias = {};
    auto y = widen(nan_operand({s.n, s.out})), dx = widen(output({s.n, s.in}, write)),
         dweight = widen(output({s.out, s.in}, write)), dbias = widen(output({s.out}, write));
    auto y_loops = y, dx_loops = dx, dweight_loops = dweight, dbias_loops = dbias;
    Context c(threads, dense_scratch_bytes(s.n, s.in, s.out, DType::kF64, threads));
    dense_forward(c.context, {.x = x.view(),
                              .weight = weight.view(),
                              .bias = bias.view(),
                              .relu = !plain,
                              .y = y.view()});
    dense_backward_data(
        c.context, {.dy = dy.view(), .weight = weight.view(), .dx = dx.view(), .write = write});
    dense_backward_weights(c.context, {.x = x.view(),
                                       .dy = dy.view(),
                                       .dweight = dweight.view(),
                                       .dbias = dbias.view(),
                                       .write = write});

    reference::dense_forward<double>({.x = x.view(),
                                      .weight = weight.view(),
                                      .bias = bias.view(),
                                      .relu = !plain,
                                      .y = y_loops.view()});
    reference::dense_backward_data<double>(
        {.dy = dy.view(), .weight = weight.view(), .dx = dx_loops.view(), .write = write});
    reference::dense_backward_weights<double>({.x = x.view(),
                                               .dy = dy.view(),
                                               .dweight = dweight_loops.view(),
                                               .dbias = dbias_loops.view(),
                                               .write = write});
    EXPECT_EQ(far_from(y.values, y_loops.values, s.in), "") << "forward";
    EXPECT_EQ(far_from(dx.values, dx_loops.values, s.out), "") << "backward to the input";
    EXPECT_EQ(far_from(dweight.values, dweight_loops.values, s.n), "") << "to the weights";
    EXPECT_EQ(far_from(dbias.values, dbias_loops.values, s.n), "") << "to the bias";
  });
}

TEST(Dense, BitsOfFloat64DoNotDependOnThreads) {
  for (const DenseSizes& s : kDenseSizes) {
    auto x = widen(random_operand({s.n, s.in}, 1)),
         weight = widen(random_operand({s.out, s.in}, 2)),
         dy = widen(random_operand({s.n, s.out}, 3));
    std::vector<std::vector<double>> results;
    for (int threads = 1; threads <= 3; ++threads) {
      Context c(threads, 0);
      Operand<double> y({s.n, s.out}, 0), dx({s.n, s.in}, 0), dweight({s.out, s.in}, 0);
      dense_forward(c.context, {.x = x.view(), .weight = weight.view(), .y = y.view()});
      dense_backward_data(
          c.context,
          {.dy = dy.view(), .weight = weight.view(), .dx = dx.view(), .write = Write::kOverwrite});
      dense_backward_weights(
          c.context,
          {.x = x.view(), .dy = dy.view(), .dweight = dweight.view(), .write = Write::kOverwrite});
      for (const auto* part : {&dx.values, &dweight.values})
        y.values.insert(y.values.end(), part->begin(), part->end());
      results.push_back(y.values);
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

TEST(Dense, RefusesOperandsThatDoNotFit) {
  Context c(1, dense_scratch_bytes(2, 3, 4, DType::kF32, 1));
  auto x = random_operand({2, 3}, 1), weight = random_operand({4, 3}, 2),
       y = random_operand({2, 4}, 3);
  auto wide = random_operand({2, 5}, 4), bias = random_operand({3}, 5);
  EXPECT_EQ(shape_error([&] {
              dense_forward(c.context, {.x = x.view(), .weight = weight.view(), .y = wide.view()});
            }),
            "dense_forward: y has the shape [2, 5], expected [2, 4]");
  EXPECT_EQ(shape_error([&] {
              dense_forward(c.context, {.x = wide.view(), .weight = weight.view(), .y = y.view()});
            }),
            "dense_forward: x has the shape [2, 5], expected [2, 3]");
  EXPECT_EQ(shape_error([&] {
              dense_forward(
                  c.context,
                  {.x = x.view(), .weight = weight.view(), .bias = bias.view(), .y = y.view()});
            }),
            "dense_forward: bias has the shape [3], expected [4]");
  EXPECT_EQ(
      shape_error([&] {
        dense_backward_weights(
            c.context,
            {.x = x.view(), .dy = wide.view(), .dweight = weight.view(), .write = Write::kAdd});
      }),
      "dense_backward_weights: dy has the shape [2, 5], expected [2, 4]");
  Operand<double> y64({2, 4}, 0.0);
  EXPECT_EQ(shape_error([&] {
              dense_forward(c.context, {.x = x.view(), .weight = weight.view(), .y = y64.view()});
            }),
            "dense_forward: y is f64, expected f32");
}

TEST(CpuIsa, NamesAreParsedAndUnknownOnesRefused) {
  EXPECT_EQ(parse_cpu_isa("baseline"), CpuIsa::kBaseline);
  for (const CpuIsa isa : gemm_test::isas_here()) EXPECT_EQ(parse_cpu_isa(to_string(isa)), isa);
  EXPECT_THROW(parse_cpu_isa("avx3"), ModelError);
  EXPECT_THROW(parse_cpu_isa(""), ModelError);
  if (best_cpu_isa() < CpuIsa::kAmx) {
    EXPECT_THROW(parse_cpu_isa("amx"), ModelError);
  }
  if (best_cpu_isa() < CpuIsa::kAvx512) {
    EXPECT_THROW(set_cpu_isa(CpuIsa::kAvx512), ModelError);
  }
}

}  // namespace
}  // namespace engine::ops
