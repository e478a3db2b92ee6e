// Products on a CUDA device against float64, for every storage: factors of one shape and factors of
// channels, odd sizes, any alignment, outputs over inputs, one gradient alone, equal bits in every
// run.
#include "engine/ops/elementwise/multiply.h"

#include "tests/engine/ops/device/device_runs.h"
#include "tests/engine/ops/elementwise/elementwise_cases.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class MultiplyCuda : public CudaTest {};
TYPED_TEST_SUITE(MultiplyCuda, Storages);

template <class T>
void compare_products(const FactorShapes& shapes, Write write, std::int64_t shift) {
  const auto& [a_shape, b_shape] = shapes;
  SCOPED_TRACE(a_shape.to_string() + " * " + b_shape.to_string() + ", shifted by " +
               std::to_string(shift));
  const Operand<float> left = random_operand(a_shape, 1);
  const Given operands[] = {left,
                            random_operand(b_shape, 2),
                            random_operand(a_shape, 3),
                            nothing(a_shape),
                            output(a_shape, write),
                            output(b_shape, write),
                            left,
                            output(b_shape, write)};
  const auto [found, expected] = run_on_device<T>(
      operands,
      [&](KernelContext& c, TensorView a, TensorView b, TensorView dy, TensorView y, TensorView da,
          TensorView db, TensorView same, TensorView alone) {
        multiply_forward(c, {a, b, y});
        multiply_backward(c, {a, b, dy, da, db, write, write});
        multiply_forward(c, {same, b, same});
        multiply_backward(c, {a, b, dy, {}, alone, {}, write});
      },
      shift);
  for (std::size_t i = 3; i < 6; ++i)
    EXPECT_LE(relative_error(found[i], expected[i]), storage_error<T>()) << i;
  EXPECT_EQ(found[6], found[3]);
  EXPECT_EQ(found[7], found[5]);
}

TYPED_TEST(MultiplyCuda, AgreesWithFloat64) {
  for (const FactorShapes& shapes : kFactorShapes)
    for (const Write write : {Write::kOverwrite, Write::kAdd})
      for (const std::int64_t shift : {0, 1}) compare_products<TypeParam>(shapes, write, shift);
}

// More packs of channels than a block has columns, and more pixels than a thread sums in float32.
TYPED_TEST(MultiplyCuda, SumsManyPixelsAndChannels) {
  for (const FactorShapes& shapes :
       {FactorShapes{{2, 3, 3, 1032}, {2, 1032}}, FactorShapes{{1, 61, 67, 24}, {1, 24}},
        FactorShapes{{2, 40, 40, 3}, {2, 3}}})
    compare_products<TypeParam>(shapes, Write::kOverwrite, 0);
}

// More packs than the largest grid has threads.
TYPED_TEST(MultiplyCuda, LoopsPastTheGrid) {
  const Shape shape{2, 521, 519, 1};
  const Operand<float> a = random_operand(shape, 1);
  const auto from = to_device<TypeParam>(shape, a.values),
             y = to_device<TypeParam>(shape, a.values),
             factors = to_device<TypeParam>({2, 1}, {2, -4});
  DeviceContext c;
  multiply_forward(c.context, {from.view(), factors.view(), y.view()});
  c.finish();
  std::vector<double> expected = kept<TypeParam>(a).values;
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] *= i < expected.size() / 2 ? 2 : -4;
  EXPECT_LE(relative_error(as_floats(y.values()), expected), 0);
}

using MultiplyCudaOnce = CudaTest;

TEST_F(MultiplyCudaOnce, RefusesShapesAndTypesThatDoNotFit) {
  DeviceContext c;
  const Shape shape{2, 3, 3, 5};
  const auto a = to_device<float>(shape, std::vector<float>(90)),
             narrow = to_device<float>({2, 3}, std::vector<float>(6));
  const auto half = to_device<bf16>(shape, std::vector<float>(90));
  EXPECT_THROW(multiply_forward(c.context, {a.view(), narrow.view(), a.view()}), ShapeError);
  EXPECT_THROW(multiply_forward(c.context, {a.view(), half.view(), a.view()}), ShapeError);
}

}  // namespace
}  // namespace engine::ops
