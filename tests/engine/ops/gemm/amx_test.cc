// That the tests of this program are of the kernels for AMX, on the model of its registers.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops/common/amx_permission.h"
#include "engine/ops/dense/dense.h"
#include "tests/engine/ops/common/bf16_test_support.h"

namespace engine::ops {

bool amx_granted() { return true; }  // in place of the system's

namespace {

using namespace kernel_test;

class Amx : public Bf16Test {};

float product_of(CpuIsa isa, const std::vector<float>& x, const std::vector<float>& weight) {
  const gemm_test::ScopedIsa scope(isa);
  const auto in = static_cast<std::int64_t>(x.size());
  Operand<float> row({1, in}, 0.f), column({1, in}, 0.f), y({1, 1}, 0.f);
  row.values = x, column.values = weight;
  Bf16Context c(1,
                dense_scratch_bytes(1, in, 1, DType::kF32, 1, Device::Kind::kCpu, Products::kBF16));
  dense_forward(c.context, {.x = row.view(), .weight = column.view(), .y = y.view()});
  return y.values[0];
}

TEST_F(Amx, IsWhatKernelsRunWith) {
  EXPECT_EQ(best_cpu_isa(), CpuIsa::kAmx);
  EXPECT_EQ(cpu_isa(), CpuIsa::kAmx);
  EXPECT_EQ(isa_of(Products::kBF16), CpuIsa::kAmx);
  EXPECT_EQ(isa_of(Products::kF32), CpuIsa::kAvx512);
  EXPECT_EQ(parse_cpu_isa("amx"), CpuIsa::kAmx);
}

// The first terms of all pairs and the second ones are summed apart, then added: 2^24 + 1 - 2^24 +
// 1 is 2 so, and 0 pair after pair, as vdpbf16ps adds them.
TEST_F(Amx, SumsInTheOrderOfItsInstruction) {
  const std::vector<float> x{0x1p24f, 1, -0x1p24f, 1}, ones(4, 1.f);
  EXPECT_EQ(product_of(CpuIsa::kAmx, x, ones), 2);
  EXPECT_EQ(product_of(CpuIsa::kAvx512, x, ones), 0);
}

TEST_F(Amx, DenormalsAreZeros) {
  EXPECT_EQ(product_of(CpuIsa::kAmx, {0x1p-127f, 0}, {2, 0}), 0);
  EXPECT_EQ(product_of(CpuIsa::kAmx, {0x1p-100f, 0}, {0x1p-30f, 0}), 0);
  EXPECT_EQ(product_of(CpuIsa::kAmx, {0x1p-100f, 0}, {0x1p-26f, 0}), 0x1p-126f);
}

}  // namespace
}  // namespace engine::ops
