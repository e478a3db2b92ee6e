// Dense kernels: the reference by hand, the fast ones against it at odd sizes on every instruction
// set, and what is refused.
#include "engine/ops/dense/dense.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "io/base/numbers/half.h"
#include "tests/engine/ops/common/products.h"
#include "tests/support/expect_contains.h"

namespace engine::ops {
namespace {

using namespace kernel_test;
using gemm_test::difference;

// Every tail of the tiles (rows 1..14, columns 1..32), sums of several chunks, and more rows than
// one block.
const DenseProduct kDenseSizes[] = {{0, 3, 5},    {1, 1, 1},     {1, 7, 10},    {3, 17, 16},
                                    {5, 16, 33},  {7, 64, 31},   {13, 257, 15}, {14, 33, 8},
                                    {29, 9, 64},  {100, 50, 10}, {97, 300, 40}, {200, 65, 47},
                                    {385, 20, 3}, {300, 530, 70}};

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

TEST(Dense, AgreesWithFloat64) {
  for_each_setting([](int threads) {
    for (const DenseProduct& s : kDenseSizes)
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(s.text() + (write == Write::kAdd ? ", add" : ""));
        expect_float64_products(s, write, threads);
      }
  });
}

TEST(Dense, BitsDoNotDependOnThreads) {
  for (const DenseProduct& s : kDenseSizes) {
    const HostProduct start = operands_of(s, Write::kOverwrite);
    const auto run = [&](auto operands, DType dtype, int threads) {
      Context c(threads, s.scratch(threads, dtype));
      s.run(c.context, operands);
      return operands;
    };
    expect_same_bits([&](int threads) { return run(start, DType::kF32, threads); }, {2, 3}, true);
    const WideProduct wide = start.as(widen, widen, widen);
    expect_same_bits([&](int threads) { return run(wide, DType::kF64, threads); }, {2, 3}, true);
  }
}

// Computes the product with a packed copy of the weight, which is then not read.
std::vector<float> packed_result(Context& c, const DenseProduct& s, HostProduct operands,
                                 DType dtype) {
  const Arena memory(dense_packed_bytes(s.in, s.out, dtype), {Device::Kind::kCpu}, "weights");
  const PackedWeight weight{memory.data(), dtype, s.in, s.out};
  const DenseForward forward = s.forward(operands);
  pack_dense_weight(c.context, forward.weight, weight);
  std::ranges::fill(operands.weight.values, std::numeric_limits<float>::quiet_NaN());
  packed_dense_forward(c.context, forward.x, weight, forward.bias, forward.relu, forward.y);
  return operands.y.values;
}

TEST(Dense, APackedWeightGivesTheSameBits) {
  for_each_setting([](int threads) {
    for (const DenseProduct& s : kDenseSizes) {
      SCOPED_TRACE(s.text());
      HostProduct plain = operands_of(s, Write::kOverwrite), rounded = plain;
      Context c(threads, s.scratch(threads, DType::kF32));
      const std::vector<float> in_f32 = packed_result(c, s, plain, DType::kF32),
                               in_bf16 = packed_result(c, s, plain, DType::kBF16);
      for (float& weight : rounded.weight.values)
        weight = base::to_float(base::from_float<base::bf16>(weight));
      dense_forward(c.context, s.forward(plain));
      dense_forward(c.context, s.forward(rounded));
      EXPECT_EQ(in_f32, plain.y.values);
      EXPECT_EQ(in_bf16, rounded.y.values);
    }
  });
}

TEST(Dense, APackedWeightKeepsWhatIsNotFinite) {
  const float infinite = std::numeric_limits<float>::infinity();
  for_each_setting([&](int threads) {
    Context c(threads, 0);
    auto weight = operand_of<float>({5, 1}, {std::numeric_limits<float>::quiet_NaN(), infinite,
                                             -infinite, 3.4e38F, 1.00390625F});
    auto x = operand_of<float>({1, 1}, {1});
    Operand<float> y({1, 5}, 0);
    const Arena memory(dense_packed_bytes(1, 5, DType::kBF16), {Device::Kind::kCpu}, "weights");
    const PackedWeight packed{memory.data(), DType::kBF16, 1, 5};
    pack_dense_weight(c.context, weight.view(), packed);
    packed_dense_forward(c.context, x.view(), packed, {}, false, y.view());
    EXPECT_TRUE(std::isnan(y.values[0]));
    EXPECT_EQ(y.values[1], infinite);
    EXPECT_EQ(y.values[2], -infinite);
    EXPECT_EQ(y.values[3], infinite);  // beyond the largest number in bf16
    EXPECT_EQ(y.values[4], 1.F);       // halfway: the even one
  });
}

TEST(Dense, APackedWeightIsOfItsShapeAndType) {
  EXPECT_THROW(dense_packed_bytes(3, 4, DType::kF64), Error);
  Context c(1, 0);
  Operand<float> weight({4, 3}, 1), x({2, 2}, 1), y({2, 4}, 0);
  const Arena memory(dense_packed_bytes(3, 4, DType::kF32), {Device::Kind::kCpu}, "weights");
  const PackedWeight packed{memory.data(), DType::kF32, 3, 4};
  EXPECT_THROW(pack_dense_weight(c.context, x.view(), packed), ShapeError);
  pack_dense_weight(c.context, weight.view(), packed);
  EXPECT_THROW(packed_dense_forward(c.context, x.view(), packed, {}, false, y.view()), ShapeError);
}

TEST(Dense, ScratchOfALargerBatchServesASmallerOne) {
  expect_growing_scratch(400, [](std::int64_t n) {
    return DenseProduct{n, 20, 30}.scratch(2, DType::kF32);
  });
}

TEST(Dense, RefusesOperandsThatDoNotFit) {
  const DenseProduct product{2, 3, 4};
  Context c(1, product.scratch(1, DType::kF32));
  const HostProduct right = operands_of(product, Write::kOverwrite);
  const auto error_of = [&](auto change) {
    HostProduct o = right;
    change(o);
    return shape_error([&] { product.run(c.context, o); });
  };
  const Operand<float> wide({2, 5}, 0);
  EXPECT_VALUES(error_of([&](HostProduct& o) { o.y = wide; }), "dense_forward: y [2, 5] [2, 4]");
  EXPECT_VALUES(error_of([&](HostProduct& o) { o.x = wide; }), "dense_forward: x [2, 5] [2, 3]");
  EXPECT_VALUES(error_of([&](HostProduct& o) { o.bias = Operand<float>({3}, 0); }),
                "dense_forward bias [3] [4]");
  HostProduct o = right;
  o.dy = wide;
  EXPECT_EQ(shape_error([&] { dense_backward_weights(c.context, product.backward_weights(o)); }),
            "dense_backward_weights: dy has the shape [2, 5], expected [2, 4]");
  Operand<double> y64({2, 4}, 0.0);
  EXPECT_EQ(shape_error([&] {
              dense_forward(c.context,
                            {.x = o.x.view(), .weight = o.weight.view(), .y = y64.view()});
            }),
            "dense_forward: y is f64, expected f32");
}

TEST(CpuIsa, NamesAreParsedAndUnknownOnesRefused) {
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
