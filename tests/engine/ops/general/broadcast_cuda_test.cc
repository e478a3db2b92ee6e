// Operators of expanded operands on a CUDA device against float64, for every storage.
#include "engine/ops/general/broadcast.h"

#include "tests/engine/ops/device/device_runs.h"
#include "tests/engine/ops/general/broadcast_cases.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class BroadcastCuda : public CudaTest {};
TYPED_TEST_SUITE(BroadcastCuda, Storages);

TYPED_TEST(BroadcastCuda, AgreesWithFloat64) {
  for (const BroadcastShapes& each : kBroadcasts)
    for (const BinaryKind kind : kBinaryKinds)
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(each.a.to_string() + " and " + each.b.to_string());
        const Given operands[] = {random_operand(each.a, 1), divisor(each.b),
                                  random_operand(each.y, 3), nothing(each.y),
                                  random_operand(each.a, 4), random_operand(each.b, 5)};
        const auto [found, expected] = run_on_device<TypeParam>(
            operands, [&](KernelContext& c, TensorView a, TensorView b, TensorView dy, TensorView y,
                          TensorView da, TensorView db) {
              broadcast_forward(c, {kind, a, b, y});
              broadcast_backward(c, {kind, a, b, dy, da, db, write, write});
            });
        for (std::size_t i = 3; i < 6; ++i)
          EXPECT_LE(relative_error(found[i], expected[i], 1), storage_error<TypeParam>()) << i;
      }
}

TYPED_TEST(BroadcastCuda, ComparisonsAgreeWithFloat64) {
  for (const BroadcastShapes& each : kBroadcasts)
    for (const BinaryKind kind : kComparisons) {
      SCOPED_TRACE(each.a.to_string() + " and " + each.b.to_string());
      const Given operands[] = {signs(each.a, 1), signs(each.b, 2), nothing(each.y)};
      const auto [found, expected] = run_on_device<TypeParam>(
          operands, [&](KernelContext& c, TensorView a, TensorView b, TensorView y) {
            broadcast_forward(c, {kind, a, b, y});
          });
      EXPECT_EQ(relative_error(found[2], expected[2], 1), 0);
    }
}

TYPED_TEST(BroadcastCuda, ChoicesAgreeWithFloat64) {
  for (const ChoiceShapes& each : kChoices)
    for (const Write write : {Write::kOverwrite, Write::kAdd}) {
      SCOPED_TRACE(each.condition.to_string() + " of " + each.y.to_string());
      const auto operands = choice_operands(each);
      const auto [found, expected] = run_on_device<TypeParam>(
          operands.all, [&](KernelContext& c, TensorView condition, TensorView a, TensorView b,
                            TensorView dy, TensorView y, TensorView da, TensorView db) {
            choose_forward(c, {condition, a, b, y});
            choose_backward(c, {condition, dy, da, db, write, write});
          });
      for (std::size_t i = 4; i < 7; ++i)
        EXPECT_LE(relative_error(found[i], expected[i], 1), storage_error<TypeParam>()) << i;
    }
}

}  // namespace
}  // namespace engine::ops
