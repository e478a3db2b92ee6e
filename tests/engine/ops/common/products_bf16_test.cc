// Products in bf16 of dense layers and convolutions: against float64 of rounded operands at odd
// sizes, threads, the batch, alignment, scratch, numbers that are not ordinary.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/engine/ops/common/bf16_test_support.h"
#include "tests/engine/ops/common/products.h"

namespace engine::ops {
namespace {

using namespace kernel_test;
using gemm_test::wide_magnitudes;

// Sums of odd and even length, of one pair and of several chunks of pairs; every tail of tiles and
// panels; more rows than one block.
const DenseProduct kDenses[] = {{0, 3, 5},     {1, 1, 1},     {1, 2, 17},     {3, 7, 10},
                                {5, 16, 33},   {7, 64, 31},   {13, 257, 15},  {14, 33, 8},
                                {29, 9, 64},   {100, 50, 10}, {31, 65, 5},    {97, 300, 40},
                                {200, 65, 47}, {385, 20, 67}, {300, 1030, 70}};

// One channel, odd and even counts of them on both sides, odd and even batches, strides whose
// classes have no taps, kernels that are not square, many panels, one panel in place.
const ConvProduct kConvs[] = {{0, {5, 5, 2, 3, 3, 3, 1, 1}},    {1, {5, 5, 1, 1, 1, 1, 1, 0}},
                              {3, {7, 6, 1, 16, 5, 5, 1, 2}},   {2, {8, 9, 3, 10, 3, 3, 1, 1}},
                              {5, {6, 6, 2, 33, 3, 3, 2, 1}},   {4, {9, 7, 5, 32, 3, 2, 1, 0}},
                              {3, {10, 10, 17, 7, 1, 1, 2, 0}}, {2, {12, 12, 16, 48, 5, 5, 1, 2}},
                              {1, {4, 4, 140, 33, 3, 3, 1, 1}}, {7, {5, 4, 6, 261, 3, 3, 3, 1}},
                              {9, {3, 3, 8, 20, 2, 2, 4, 1}},   {2, {20, 20, 9, 31, 3, 3, 1, 1}}};

class ProductsBf16 : public Bf16Test {};

// Calls check(product, whole) for all of them: `whole` where the gradients of parameters, too, have
// the same bits for any number of threads.
template <class Check>
void for_each_product(Check check) {
  for (const DenseProduct& s : kDenses) {
    SCOPED_TRACE(s.text());
    check(s, true);
  }
  for (const ConvProduct& c : kConvs) {
    SCOPED_TRACE(c.text());
    check(c, false);
  }
}

// All three calls, in place.
template <class Product, class Operands>
void run_bf16(const Product& s, Operands& o, int threads) {
  Bf16Context context(threads, s.scratch(threads, DType::kF32, Products::kBF16));
  context.context.convolutions = Convolutions::kDirect;
  s.run(context.context, o);
}
template <class Product>
HostProduct products_of(const Product& s, Write write, int threads) {
  HostProduct o = operands_of(s, write);
  run_bf16(s, o, threads);
  return o;
}

// The bias and its gradient are not rounded.
TEST_F(ProductsBf16, AreThoseOfRoundedOperands) {
  for_each_product([](const auto& s, bool) {
    for (const Write write : {Write::kOverwrite, Write::kAdd}) {
      const HostProduct start = operands_of(s, write);
      const WideProduct expected = loops_of(s, start, widen_rounded, widen),
                        bound = bound_of(s, start, rounded_magnitudes, wide_magnitudes);
      for (int threads = 1; threads <= 3; ++threads) {
        SCOPED_TRACE(std::to_string(threads) + " threads" + (write == Write::kAdd ? ", add" : ""));
        expect_within(products_of(s, write, threads), expected, bound);
      }
    }
  });
}

// Else the test above would pass with products in f32.
TEST_F(ProductsBf16, RoundAsMuchAsBf16Does) {
  const DenseProduct dense{64, 96, 48};
  const HostProduct start = operands_of(dense, Write::kOverwrite),
                    found = products_of(dense, Write::kOverwrite, 1);
  const WideProduct exact = loops_of(dense, start, widen, widen),
                    bound = bound_of(dense, start, wide_magnitudes, wide_magnitudes);
  double largest = 0;
  for (std::size_t i = 0; i < exact.y.values.size(); ++i) {
    const double error = std::fabs(found.y.values[i] - exact.y.values[i]) / bound.y.values[i];
    EXPECT_LE(error, 0x1p-7);
    largest = std::max(largest, error);
  }
  EXPECT_GT(largest, 0x1p-13);

  const ConvProduct conv{2, {8, 8, 6, 20, 3, 3, 1, 1}};
  const HostProduct passes = products_of(conv, Write::kOverwrite, 1);
  const WideProduct loops = loops_of(conv, operands_of(conv, Write::kOverwrite), widen, widen);
  const auto rounds = [](const Operand<float>& a, const Operand<double>& b) {
    return far_apart(a.values, b.values, 1e-4, 1e-4) != "" &&
           far_apart(a.values, b.values, 0, 0.1) == "";
  };
  EXPECT_TRUE(rounds(passes.y, loops.y));
  EXPECT_TRUE(rounds(passes.dx, loops.dx));
  EXPECT_TRUE(rounds(passes.dweight, loops.dweight));
}

TEST_F(ProductsBf16, ThreadsDoNotChangeBits) {
  for_each_product([](const auto& s, bool whole) {
    for (const Write write : {Write::kOverwrite, Write::kAdd})
      expect_same_bits([&](int threads) { return products_of(s, write, threads); }, {2, 3, 5},
                       whole);
  });
}

TEST_F(ProductsBf16, AlignmentDoesNotChangeBits) {
  for_each_product([](const auto& s, bool) {
    const HostProduct expected = products_of(s, Write::kAdd, 1);
    const auto misplace = [](const Operand<float>& operand) { return Misplaced(operand); };
    auto moved = operands_of(s, Write::kAdd).as(misplace, misplace, misplace);
    run_bf16(s, moved, 1);
    EXPECT_EQ(moved.y.values(), expected.y.values);
    EXPECT_EQ(moved.dx.values(), expected.dx.values);
    EXPECT_EQ(moved.dweight.values(), expected.dweight.values);
    EXPECT_EQ(moved.dbias.values(), expected.dbias.values);
  });
}

TEST_F(ProductsBf16, AnImageHasTheSameOutputInAnyBatch) {
  for (const ConvProduct& c : kConvs)
    for (std::int64_t n = 1; n < c.n; ++n)
      expect_images_alone(c, {n}, [](const ConvProduct& part, int threads) {
        return products_of(part, Write::kOverwrite, threads);
      });
}

TEST_F(ProductsBf16, ScratchOfALargerBatchServesASmallerOne) {
  for_each_product([](auto s, bool) {
    for (const int threads : {1, 2, 3, 5})
      expect_growing_scratch(500, [&](std::int64_t n) {
        s.n = n;
        return s.scratch(threads, DType::kF32, Products::kBF16);
      });
  });
}

TEST_F(ProductsBf16, WhatIsNotFiniteStaysSo) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity(),
                  kNan = std::numeric_limits<float>::quiet_NaN();
  Operand<float> x({3, 3}, 1.f), weight({2, 3}, 1.f);
  x.values = {1, kInfinite, 1, 1, 1, kNan, 1, 1, 1};
  auto y = gemm_test::nan_operand({3, 2});
  Bf16Context c(1,
                dense_scratch_bytes(3, 3, 2, DType::kF32, 1, Device::Kind::kCpu, Products::kBF16));
  dense_forward(c.context, {.x = x.view(), .weight = weight.view(), .y = y.view()});
  EXPECT_EQ(y.values[0], kInfinite);
  EXPECT_TRUE(std::isnan(y.values[2]));
  EXPECT_EQ(y.values[4], 3);
}

TEST(Bf16Products, AreRefusedWhereTheyCannotBeComputed) {
  if (!is_supported(CpuIsa::kAvx2)) GTEST_SKIP() << "has one instruction set only";
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
