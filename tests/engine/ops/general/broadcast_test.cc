// Operators of expanded operands: values by hand, float32 against float64 for each expansion,
// activations stored in bf16, and shapes that do not fit.
#include "engine/ops/general/broadcast.h"

#include <gtest/gtest.h>

#include "tests/engine/ops/common/kernel_runs.h"
#include "tests/engine/ops/common/stored_test_support.h"
#include "tests/engine/ops/general/broadcast_cases.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

TEST(BroadcastKernel, CombinesARowAndAColumn) {
  for_each_setting([](int threads) {
    Context c(threads, 0);
    Operand<float> a = operand_of<float>({2, 1}, {8, 4}), b = operand_of<float>({1, 3}, {1, 2, 4}),
                   y({2, 3}, 9), da({2, 1}, 0), db({1, 3}, 0), dy({2, 3}, 1);
    const auto run = [&](BinaryKind kind) {
      broadcast_forward(c.context, {kind, a.view(), b.view(), y.view()});
      broadcast_backward(c.context, {kind, a.view(), b.view(), dy.view(), da.view(), db.view()});
    };
    run(BinaryKind::kSubtract);
    EXPECT_EQ(y.values, (std::vector<float>{7, 6, 4, 3, 2, 0}));
    EXPECT_EQ(da.values, (std::vector<float>{3, 3}));
    EXPECT_EQ(db.values, (std::vector<float>{-2, -2, -2}));
    run(BinaryKind::kDivide);
    EXPECT_EQ(y.values, (std::vector<float>{8, 4, 2, 4, 2, 1}));
    EXPECT_EQ(da.values, (std::vector<float>{1.75, 1.75}));
    EXPECT_EQ(db.values, (std::vector<float>{-12, -3, -0.75}));
  });
}

TEST(BroadcastKernel, AgreesWithFloat64) {
  for_each_setting([](int threads) {
    for (const BroadcastShapes& each : kBroadcasts)
      for (const BinaryKind kind : kBinaryKinds)
        for (const Write write : {Write::kOverwrite, Write::kAdd}) {
          SCOPED_TRACE(each.a.to_string() + " and " + each.b.to_string());
          const Given operands[] = {random_operand(each.a, 1), divisor(each.b),
                                    random_operand(each.y, 3), nothing(each.y),
                                    random_operand(each.a, 4), random_operand(each.b, 5)};
          const auto [found, expected] =
              run_both(threads, operands,
                       [&](KernelContext& c, TensorView a, TensorView b, TensorView dy,
                           TensorView y, TensorView da, TensorView db) {
                         broadcast_forward(c, {kind, a, b, y});
                         broadcast_backward(c, {kind, a, b, dy, da, db, write, write});
                       });
          for (std::size_t i = 3; i < 6; ++i)
            EXPECT_EQ(far_apart(found[i], expected[i], 1e-5, 1e-5), "") << i;
        }
  });
}

struct StoredBroadcastCase {
  const BroadcastShapes& shapes;
  BinaryKind kind;

  template <class T>
  std::vector<std::vector<float>> operator()(T) const {
    auto a = stored_operand<T>(shapes.a, 1), b = stored_operand<T>(shapes.b, 2),
         dy = stored_operand<T>(shapes.y, 3), y = stored_output<T>(shapes.y, Write::kOverwrite),
         da = stored_output<T>(shapes.a, Write::kOverwrite),
         db = stored_output<T>(shapes.b, Write::kOverwrite);
    Context c(2, 0);
    broadcast_forward(c.context, {kind, a.view(), b.view(), y.view()});
    broadcast_backward(c.context, {kind, a.view(), b.view(), dy.view(), da.view(), db.view()});
    return {floats_of(y), floats_of(da), floats_of(db)};
  }
};

class BroadcastStored : public Bf16Test {};

TEST_F(BroadcastStored, IsThatOfFloatsRounded) {
  for (const BroadcastShapes& shapes : kBroadcasts)
    for (const BinaryKind kind : {BinaryKind::kAdd, BinaryKind::kSubtract, BinaryKind::kMultiply})
      expect_same_rounded(StoredBroadcastCase{shapes, kind}, 3, 1e-4);
}

TEST(BroadcastKernel, RefusesShapesThatDoNotFit) {
  Context c(1, 0);
  Operand<float> a({2, 3}, 0), b({2, 2}, 0), y({2, 3}, 0);
  EXPECT_EQ(shape_error([&] {
              broadcast_forward(c.context, {BinaryKind::kAdd, a.view(), b.view(), y.view()});
            }),
            "broadcast_forward: a has the shape [2, 3], b [2, 2]: expected the extents of [2, 3] "
            "or 1");
}

}  // namespace
}  // namespace engine::ops
