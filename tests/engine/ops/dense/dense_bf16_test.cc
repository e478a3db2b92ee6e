// The dense layer with products in bf16: against float64 of rounded operands at odd sizes, threads,
// alignment, numbers that are not ordinary.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/ops/dense/dense.h"
#include "engine/ops/dense/dense_reference.h"
#include "tests/engine/ops/common/bf16_test_support.h"

namespace engine::ops {
namespace {

using namespace kernel_test;
using gemm_test::difference;
using gemm_test::nan_operand;
using gemm_test::wide_magnitudes;

struct Bf16DenseSizes {
  std::int64_t n, in, out;
  std::string text() const {
    return std::to_string(n) + " x " + std::to_string(in) + " -> " + std::to_string(out);
  }
};

// Sums of odd and even length, of one pair and of several chunks of pairs; every tail of tiles and
// panels; more rows than one block.
const Bf16DenseSizes kBf16DenseSizes[] = {
    {0, 3, 5},   {1, 1, 1},     {1, 2, 17},    {3, 7, 10},    {5, 16, 33},
    {7, 64, 31}, {13, 257, 15}, {14, 33, 8},   {29, 9, 64},   {100, 50, 10},
    {31, 65, 5}, {97, 300, 40}, {200, 65, 47}, {385, 20, 67}, {300, 1030, 70}};

struct DenseRun {
  Bf16DenseSizes s;
  int threads;
  Write write;
  Bf16Context c{threads, dense_scratch_bytes(s.n, s.in, s.out, DType::kF32, threads,
                                             Device::Kind::kCpu, Products::kBF16)};
  Operand<float> x = random_operand({s.n, s.in}, 1), dy = random_operand({s.n, s.out}, 2),
                 weight = random_operand({s.out, s.in}, 3), bias = random_operand({s.out}, 4);
  Operand<float> y = nan_operand(dy.shape), dx = output(x.shape, write),
                 dweight = output(weight.shape, write), dbias = output(bias.shape, write);
  bool plain = write == Write::kAdd;  // forward without a bias, with a ReLU

  DenseRun(const Bf16DenseSizes& sizes, int t, Write w) : s(sizes), threads(t), write(w) {}

  void run() {
    dense_forward(c.context, {.x = x.view(),
                              .weight = weight.view(),
                              .bias = plain ? TensorView{} : bias.view(),
                              .relu = plain,
                              .y = y.view()});
    dense_backward_data(
        c.context, {.dy = dy.view(), .weight = weight.view(), .dx = dx.view(), .write = write});
    dense_backward_weights(c.context, {.x = x.view(),
                                       .dy = dy.view(),
                                       .dweight = dweight.view(),
                                       .dbias = dbias.view(),
                                       .write = write});
  }
};

struct WideDense {
  std::vector<double> y, dx, dweight, dbias;
};

// By the plain loops: `operand` makes what products read of an operand, `sum` what is added as it
// is.
template <class OfOperand, class OfSum>
WideDense wide_dense_of(const DenseRun& d, bool relu, OfOperand operand, OfSum sum) {
  auto x = operand(d.x), dy = operand(d.dy), weight = operand(d.weight), bias = sum(d.bias);
  Operand<double> y(d.y.shape, 0);
  const auto start = [&](const Operand<float>& result) {
    return d.write == Write::kAdd ? sum(output(result.shape, d.write))
                                  : Operand<double>(result.shape, 0);
  };
  auto dx = start(d.dx), dweight = start(d.dweight), dbias = start(d.dbias), whole_dy = sum(d.dy),
       unused = start(d.dweight);
  reference::dense_forward<double>({.x = x.view(),
                                    .weight = weight.view(),
                                    .bias = d.plain ? TensorView{} : bias.view(),
                                    .relu = relu && d.plain,
                                    .y = y.view()});
  reference::dense_backward_data<double>(
      {.dy = dy.view(), .weight = weight.view(), .dx = dx.view(), .write = d.write});
  reference::dense_backward_weights<double>(
      {.x = x.view(), .dy = dy.view(), .dweight = dweight.view(), .write = d.write});
  reference::dense_backward_weights<double>({.x = x.view(),
                                             .dy = whole_dy.view(),
                                             .dweight = unused.view(),
                                             .dbias = dbias.view(),
                                             .write = d.write});
  return {y.values, dx.values, dweight.values, dbias.values};
}

class DenseBf16 : public Bf16Test {};

// The bias and its gradient are not rounded.
TEST_F(DenseBf16, IsTheProductOfRoundedOperands) {
  for (const Bf16DenseSizes& s : kBf16DenseSizes)
    for (int threads = 1; threads <= 3; ++threads)
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(s.text() + ", " + std::to_string(threads) + " threads" +
                     (write == Write::kAdd ? ", add" : ""));
        DenseRun d(s, threads, write);
        d.run();
        const WideDense expected = wide_dense_of(d, true, widen_rounded, widen),
                        bound = wide_dense_of(d, false, rounded_magnitudes, wide_magnitudes);
        EXPECT_EQ(difference(d.y.values, expected.y, bound.y), "");
        EXPECT_EQ(difference(d.dx.values, expected.dx, bound.dx), "");
        EXPECT_EQ(difference(d.dweight.values, expected.dweight, bound.dweight), "");
        EXPECT_EQ(difference(d.dbias.values, expected.dbias, bound.dbias), "");
      }
}

// Else the test above would pass with products in f32.
TEST_F(DenseBf16, RoundsAsMuchAsBf16Does) {
  DenseRun d({64, 96, 48}, 1, Write::kOverwrite);
  d.run();
  const WideDense exact = wide_dense_of(d, true, widen, widen),
                  bound = wide_dense_of(d, false, wide_magnitudes, wide_magnitudes);
  double largest = 0;
  for (std::size_t i = 0; i < exact.y.size(); ++i) {
    const double error = std::fabs(d.y.values[i] - exact.y[i]) / bound.y[i];
    EXPECT_LE(error, 0x1p-7);
    largest = std::max(largest, error);
  }
  EXPECT_GT(largest, 0x1p-13);
}

TEST_F(DenseBf16, BitsDependOnNeitherThreadsNorAlignment) {
  for (const Bf16DenseSizes& s : kBf16DenseSizes) {
    SCOPED_TRACE(s.text());
    DenseRun one(s, 1, Write::kAdd);
    one.run();
    for (int threads = 2; threads <= 5; ++threads) {
      DenseRun more(s, threads, Write::kAdd);
      more.run();
      EXPECT_EQ(more.y.values, one.y.values);
      EXPECT_EQ(more.dx.values, one.dx.values);
      EXPECT_EQ(more.dweight.values, one.dweight.values);
      EXPECT_EQ(more.dbias.values, one.dbias.values);
    }
    DenseRun d(s, 2, Write::kAdd);
    Misplaced x(d.x), dy(d.dy), weight(d.weight), y(d.y), dx(d.dx), dweight(d.dweight),
        dbias(d.dbias);
    dense_forward(d.c.context,
                  {.x = x.view(), .weight = weight.view(), .relu = true, .y = y.view()});
    dense_backward_data(
        d.c.context,
        {.dy = dy.view(), .weight = weight.view(), .dx = dx.view(), .write = Write::kAdd});
    dense_backward_weights(d.c.context, {.x = x.view(),
                                         .dy = dy.view(),
                                         .dweight = dweight.view(),
                                         .dbias = dbias.view(),
                                         .write = Write::kAdd});
    EXPECT_EQ(y.values(), one.y.values);
    EXPECT_EQ(dx.values(), one.dx.values);
    EXPECT_EQ(dweight.values(), one.dweight.values);
    EXPECT_EQ(dbias.values(), one.dbias.values);
  }
}

TEST_F(DenseBf16, WhatIsNotFiniteStaysSo) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity(),
                  kNan = std::numeric_limits<float>::quiet_NaN();
  Operand<float> x({3, 3}, 1.f), weight({2, 3}, 1.f);
  x.values = {1, kInfinite, 1, 1, 1, kNan, 1, 1, 1};
  auto y = nan_operand({3, 2});
  Bf16Context c(1,
                dense_scratch_bytes(3, 3, 2, DType::kF32, 1, Device::Kind::kCpu, Products::kBF16));
  dense_forward(c.context, {.x = x.view(), .weight = weight.view(), .y = y.view()});
  EXPECT_EQ(y.values[0], kInfinite);
  EXPECT_TRUE(std::isnan(y.values[2]));
  EXPECT_EQ(y.values[4], 3);
}

TEST_F(DenseBf16, ScratchOfALargerBatchServesASmallerOne) {
  for (const int threads : {1, 3}) {
    std::size_t before = 0;
    for (std::int64_t n = 0; n < 500; ++n) {
      const std::size_t bytes =
          dense_scratch_bytes(n, 21, 30, DType::kF32, threads, Device::Kind::kCpu, Products::kBF16);
      EXPECT_GE(bytes, before) << n;
      before = bytes;
    }
  }
}

TEST(Bf16Products, AreRefusedWhereTheyCannotBeComputed) {
  if (best_cpu_isa() < CpuIsa::kAvx2) GTEST_SKIP() << "has one instruction set only";
  const gemm_test::ScopedIsa scope(CpuIsa::kAvx2);
  EXPECT_NE(missing_bf16_products(), "");
  EXPECT_FALSE(in_bf16(Products::kF32));
  EXPECT_THROW(in_bf16(Products::kBF16), ModelError);
  Operand<float> x({1, 2}, 1.f), weight({1, 2}, 1.f), y({1, 1}, 0.f);
  Bf16Context c(1, 1 << 16);
  EXPECT_THROW(dense_forward(c.context, {.x = x.view(), .weight = weight.view(), .y = y.view()}),
               ModelError);
}

}  // namespace
}  // namespace engine::ops
