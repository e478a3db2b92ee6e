// Operators of expanded operands: values by hand, float32 against float64 for each expansion,
// activations stored in bf16, and shapes that do not fit.
#include "engine/ops/general/broadcast.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/engine/ops/common/kernel_runs.h"
#include "tests/engine/ops/common/stored_test_support.h"
#include "tests/engine/ops/general/broadcast_cases.h"
#include "tests/support/expect_contains.h"

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

TEST(BroadcastKernel, ComparisonsAreOneOrZero) {
  for_each_setting([](int threads) {
    Context c(threads, 0);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    Operand<float> a = operand_of<float>({4, 1}, {-1, 2, 3, nan}),
                   b = operand_of<float>({1, 2}, {2, 3}), y({4, 2}, 9);
    const auto compared = [&](BinaryKind kind) {
      broadcast_forward(c.context, {kind, a.view(), b.view(), y.view()});
      return y.values;
    };
    EXPECT_EQ(compared(BinaryKind::kGreater), (std::vector<float>{0, 0, 0, 0, 1, 0, 0, 0}));
    EXPECT_EQ(compared(BinaryKind::kGreaterEqual), (std::vector<float>{0, 0, 1, 0, 1, 1, 0, 0}));
    EXPECT_EQ(compared(BinaryKind::kEqual), (std::vector<float>{0, 0, 1, 0, 0, 1, 0, 0}));
  });
}

TEST(ChoiceKernel, LeavesWhatIsNotChosenAlone) {
  for_each_setting([](int threads) {
    Context c(threads, 0);
    const float nan = std::numeric_limits<float>::quiet_NaN(),
                infinity = std::numeric_limits<float>::infinity();
    Operand<float> condition = operand_of<float>({1, 4}, {1, 0, -2, 0}),
                   a = operand_of<float>({2, 4}, {1, nan, 3, infinity, 5, nan, 7, 8}),
                   b = operand_of<float>({2, 1}, {10, 20}), y({2, 4}, 9), da({2, 4}, nan),
                   db({2, 1}, 0.5F), dy = operand_of<float>({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
    choose_forward(c.context, {condition.view(), a.view(), b.view(), y.view()});
    EXPECT_EQ(y.values, (std::vector<float>{1, 10, 3, 10, 5, 20, 7, 20}));
    choose_backward(c.context, {.condition = condition.view(),
                                .dy = dy.view(),
                                .da = da.view(),
                                .db = db.view(),
                                .db_write = Write::kAdd});
    EXPECT_EQ(da.values, (std::vector<float>{1, 0, 3, 0, 5, 0, 7, 0}));
    EXPECT_EQ(db.values, (std::vector<float>{6.5, 14.5}));
  });
}

TEST(ChoiceKernel, AgreesWithFloat64) {
  for_each_setting([](int threads) {
    for (const ChoiceShapes& each : kChoices)
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(each.condition.to_string() + " of " + each.y.to_string());
        const auto operands = choice_operands(each);
        const auto [found, expected] =
            run_both(threads, operands.all,
                     [&](KernelContext& c, TensorView condition, TensorView a, TensorView b,
                         TensorView dy, TensorView y, TensorView da, TensorView db) {
                       choose_forward(c, {condition, a, b, y});
                       choose_backward(c, {condition, dy, da, db, write, write});
                     });
        for (std::size_t i = 4; i < 7; ++i)
          EXPECT_EQ(far_apart(found[i], expected[i], 1e-5, 1e-5), "") << i;
      }
  });
}

TEST(ChoiceKernel, RefusesAConditionThatDoesNotFit) {
  Context c(1, 0);
  Operand<float> condition({2, 2}, 0), a({2, 3}, 0), y({2, 3}, 0);
  EXPECT_VALUES(shape_error([&] {
                  choose_forward(c.context, {condition.view(), a.view(), a.view(), y.view()});
                }),
                "choose_forward [2, 2] [2, 3] 1");
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

struct StoredChoiceCase {
  const ChoiceShapes& shapes;

  template <class T>
  std::vector<std::vector<float>> operator()(T) const {
    auto condition = stored_operand<T>(shapes.condition, 1), a = stored_operand<T>(shapes.a, 2),
         b = stored_operand<T>(shapes.b, 3), dy = stored_operand<T>(shapes.y, 4),
         y = stored_output<T>(shapes.y, Write::kOverwrite),
         da = stored_output<T>(shapes.a, Write::kOverwrite),
         db = stored_output<T>(shapes.b, Write::kOverwrite);
    for (std::size_t i = 0; i < condition.values.size(); i += 2) condition.values[i] = T{};
    Context c(2, 0);
    choose_forward(c.context, {condition.view(), a.view(), b.view(), y.view()});
    choose_backward(c.context, {condition.view(), dy.view(), da.view(), db.view()});
    return {floats_of(y), floats_of(da), floats_of(db)};
  }
};

TEST_F(BroadcastStored, ChoicesAreThoseOfFloatsRounded) {
  for (const ChoiceShapes& shapes : kChoices)
    expect_same_rounded(StoredChoiceCase{shapes}, 3, 1e-4);
}

TEST(BroadcastKernel, RefusesShapesThatDoNotFit) {
  Context c(1, 0);
  Operand<float> a({2, 3}, 0), b({2, 2}, 0), y({2, 3}, 0);
  EXPECT_VALUES(shape_error([&] {
                  broadcast_forward(c.context, {BinaryKind::kAdd, a.view(), b.view(), y.view()});
                }),
                "broadcast_forward [2, 3] [2, 2] [2, 3] 1");
}

}  // namespace
}  // namespace engine::ops
