// Products: values and gradients by hand, float32 against float64 at odd sizes, equal bits for any
// number of threads, activations stored in bf16, and shapes that do not fit.
#include "engine/ops/elementwise/multiply.h"

#include <gtest/gtest.h>

#include "tests/engine/ops/common/kernel_runs.h"
#include "tests/engine/ops/common/stored_test_support.h"
#include "tests/engine/ops/elementwise/elementwise_cases.h"
#include "tests/support/expect_contains.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

TEST(MultiplyKernel, ScalesChannels) {
  for_each_setting([](int threads) {
    Context c(threads, 0);
    Operand<float> a = operand_of<float>({1, 2, 1, 2}, {1, 2, 3, 4}),
                   b = operand_of<float>({1, 2}, {10, -1}), y({1, 2, 1, 2}, 9), da = y,
                   db({1, 2}, 1), dy = operand_of<float>({1, 2, 1, 2}, {1, 2, 3, 4});
    multiply_forward(c.context, {.a = a.view(), .b = b.view(), .y = y.view()});
    EXPECT_EQ(y.values, (std::vector<float>{10, -2, 30, -4}));
    multiply_backward(c.context, {.a = a.view(),
                                  .b = b.view(),
                                  .dy = dy.view(),
                                  .da = da.view(),
                                  .db = db.view(),
                                  .db_write = Write::kAdd});
    EXPECT_EQ(da.values, (std::vector<float>{10, -2, 30, -4}));
    EXPECT_EQ(db.values, (std::vector<float>{11, 21}));
  });
}

TEST(MultiplyKernel, AgreesWithFloat64AtOddSizes) {
  for_each_setting([](int threads) {
    for (const auto& [a_shape, b_shape] : kFactorShapes)
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(a_shape.to_string() + " * " + b_shape.to_string());
        const Given operands[] = {random_operand(a_shape, 1), random_operand(b_shape, 2),
                                  random_operand(a_shape, 3), output(a_shape, Write::kOverwrite),
                                  output(a_shape, write),     output(b_shape, write)};
        const auto [found, expected] =
            run_both(threads, operands,
                     [&](KernelContext& c, TensorView a, TensorView b, TensorView dy, TensorView y,
                         TensorView da, TensorView db) {
                       multiply_forward(c, {a, b, y});
                       multiply_backward(c, {a, b, dy, da, db, write, write});
                     });
        for (std::size_t i = 3; i < 6; ++i)
          EXPECT_EQ(far_apart(found[i], expected[i], 1e-5, 1e-5), "") << i;
      }
  });
}

// y may be a, and a gradient may be left out.
TEST(MultiplyKernel, WorksInPlaceAndForOneGradient) {
  Context c(2, 0);
  Operand<float> a = random_operand({2, 3, 3, 5}, 1), b = random_operand({2, 5}, 2),
                 y = gemm_test::nan_operand(a.shape), dy = random_operand(a.shape, 3), da = y,
                 db = gemm_test::nan_operand(b.shape), alone = db;
  multiply_forward(c.context, {a.view(), b.view(), y.view()});
  multiply_backward(c.context, {a.view(), b.view(), dy.view(), da.view(), db.view()});
  multiply_backward(c.context, {a.view(), b.view(), dy.view(), {}, alone.view()});
  EXPECT_EQ(alone.values, db.values);
  multiply_forward(c.context, {a.view(), b.view(), a.view()});
  EXPECT_EQ(a.values, y.values);
}

TEST(MultiplyKernel, ThreadsDoNotChangeTheBits) {
  std::vector<float> first;
  for (const int threads : {1, 2, 3, 5}) {
    Context c(threads, 0);
    Operand<float> a = random_operand({3, 9, 11, 21}, 1), b = random_operand({3, 21}, 2),
                   dy = random_operand(a.shape, 3), db = b;
    multiply_backward(c.context, {a.view(), b.view(), dy.view(), {}, db.view()});
    if (first.empty()) first = db.values;
    EXPECT_EQ(db.values, first) << threads;
  }
}

TEST(MultiplyKernel, RefusesShapesThatDoNotFit) {
  Context c(1, 0);
  Operand<float> a({2, 3, 3, 5}, 0), b({2, 3}, 0), y({2, 3, 3, 5}, 0);
  EXPECT_VALUES(shape_error([&] {
                  multiply_forward(c.context, {a.view(), b.view(), y.view()});
                }),
                "multiply_forward: a [2, 3, 3, 5], b [2, 3]: [n, channels]");
}

struct StoredMultiplyCase {
  FactorShapes shapes;
  Write write;

  template <class T>
  std::vector<std::vector<float>> operator()(T) const {
    auto a = stored_operand<T>(shapes.a, 1), b = stored_operand<T>(shapes.b, 2),
         dy = stored_operand<T>(shapes.a, 3), y = stored_output<T>(shapes.a, Write::kOverwrite),
         da = stored_output<T>(shapes.a, write), db = stored_output<T>(shapes.b, write);
    Context c(2, 0);
    multiply_forward(c.context, {a.view(), b.view(), y.view()});
    multiply_backward(c.context,
                      {a.view(), b.view(), dy.view(), da.view(), db.view(), write, write});
    return {floats_of(y), floats_of(da), floats_of(db)};
  }
};

class MultiplyStored : public Bf16Test {};

TEST_F(MultiplyStored, IsThatOfFloatsRounded) {
  for (const FactorShapes& shapes : kFactorShapes)
    for (const Write write : {Write::kOverwrite, Write::kAdd})
      expect_same_rounded(StoredMultiplyCase{shapes, write}, 3, 1e-4);
}

}  // namespace
}  // namespace engine::ops
