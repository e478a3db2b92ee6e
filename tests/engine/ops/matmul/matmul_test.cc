// Batched matrix products: plain loops in float64, and the fast kernels against them.
#include <gtest/gtest.h>

#include "tests/engine/ops/matmul/matmul_cases.h"
#include "tests/support/expect_contains.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

// The results by plain loops.
MatmulCase<Operand<double>> loops_of(const MatmulCase<Operand<double>>& start,
                                     const MatmulSetting& s, Write write) {
  MatmulCase<Operand<double>> c = start;
  if (write == Write::kOverwrite)
    c.da = Operand<double>(s.a(), 0), c.db = Operand<double>(s.b(), 0);
  for (std::int64_t p = 0; p < s.sizes().products; ++p)
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = 0; j < s.n; ++j) {
        const auto at_y = static_cast<std::size_t>((p * s.m + i) * s.n + j);
        double sum = 0;
        for (std::int64_t l = 0; l < s.k; ++l) {
          const auto at_a = static_cast<std::size_t>((p * s.m + i) * s.k + l);
          const auto at_b =
              static_cast<std::size_t>(p * s.k * s.n + (s.transpose_b ? j * s.k + l : l * s.n + j));
          sum += c.a.values[at_a] * c.b.values[at_b];
          c.da.values[at_a] += s.scale * c.dy.values[at_y] * c.b.values[at_b];
          c.db.values[at_b] += s.scale * c.dy.values[at_y] * c.a.values[at_a];
        }
        c.y.values[at_y] = s.scale * sum;
      }
  return c;
}

template <class T>
void compare(const MatmulSetting& s, Write write, int threads, MatmulCase<Operand<T>> c,
             double error) {
  SCOPED_TRACE(s.text());
  const MatmulCase<Operand<double>> expected = loops_of(matmul_case(s, write).as(widen), s, write);
  const DType dtype = sizeof(T) == 4 ? DType::kF32 : DType::kF64;
  Context context(threads, matmul_scratch_bytes(s.sizes(), dtype, threads));
  c.forward(context.context, s);
  c.backward(context.context, s, write);
  EXPECT_EQ(far_apart(c.y.values, expected.y.values, error, error), "");
  EXPECT_EQ(far_apart(c.da.values, expected.da.values, error, error), "");
  EXPECT_EQ(far_apart(c.db.values, expected.db.values, error, error), "");
}

TEST(Matmul, AgreesWithPlainLoops) {
  for_each_setting([](int threads) {
    for (const MatmulSetting& s : kMatmuls)
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        compare<float>(s, write, threads, matmul_case(s, write), 2e-5);
        compare<double>(s, write, threads, matmul_case(s, write).as(widen), 1e-12);
      }
  });
}

// Whether threads share a product or have products of their own.
TEST(Matmul, BitsDoNotDependOnThreads) {
  for (const MatmulSetting& s : kMatmuls) {
    const auto run = [&](int threads) {
      MatmulCase<Operand<float>> c = matmul_case(s, Write::kOverwrite);
      Context context(threads, matmul_scratch_bytes(s.sizes(), DType::kF32, threads));
      c.forward(context.context, s);
      c.backward(context.context, s, Write::kOverwrite);
      return std::vector{c.y.values, c.da.values, c.db.values};
    };
    const auto one = run(1);
    EXPECT_EQ(run(2), one) << s.text();
    EXPECT_EQ(run(7), one) << s.text();
  }
}

TEST(Matmul, ComputesOnlyTheGradientsThatAreNeeded) {
  const MatmulSetting s{{3}, 4, 5, 6, false, 0.5};
  MatmulCase<Operand<float>> all = matmul_case(s, Write::kOverwrite), one = all, other = all;
  Context context(2, matmul_scratch_bytes(s.sizes(), DType::kF32, 2));
  all.backward(context.context, s, Write::kOverwrite);
  MatmulBackward o{.a = one.a.view(), .b = one.b.view(), .dy = one.dy.view(), .scale = 0.5};
  o.da = one.da.view();
  matmul_backward(context.context, o);
  EXPECT_EQ(one.da.values, all.da.values);
  o.dy = other.dy.view();
  o.da = {};
  o.db = other.db.view();
  matmul_backward(context.context, o);
  EXPECT_EQ(other.db.values, all.db.values);
}

TEST(Matmul, RefusesShapesThatDoNotFit) {
  const auto error_of = [](const Shape& a, const Shape& b, bool transpose_b, const Shape& y) {
    Operand<float> x(a, 0), z(b, 0), to(y, 0);
    Context context(1, 1 << 20);
    return shape_error([&] {
      matmul_forward(context.context,
                     {.a = x.view(), .b = z.view(), .transpose_b = transpose_b, .y = to.view()});
    });
  };
  EXPECT_VALUES(error_of({2, 3, 4}, {2, 5, 3}, false, {2, 3, 3}),
                "matmul_forward [2, 3, 4] [2, 5, 3] [..., m, k] [..., k, n]");
  EXPECT_VALUES(error_of({2, 3, 4}, {3, 5, 4}, true, {2, 3, 5}),
                "matmul_forward [2, 3, 4] [3, 5, 4] [..., m, k] [..., n, k]");
  EXPECT_VALUES(error_of({2, 3, 4}, {3, 4}, false, {2, 3, 4}),
                "matmul_forward [2, 3, 4] [3, 4] [..., m, k] [..., k, n]");
  EXPECT_NE(error_of({2, 3, 4}, {2, 4, 5}, false, {2, 3, 4}), "");
}

}  // namespace
}  // namespace engine::ops
