// Pooling on a CUDA device against float64: odd windows, ceil_mode, ties, NaNs, and sizes of
// models.
#include "engine/ops/pool/pool2d.h"

#include "tests/engine/ops/device/device_runs.h"
#include "tests/engine/ops/pool/pool_cases.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class Pool2dCuda : public CudaTest {};
TYPED_TEST_SUITE(Pool2dCuda, Storages);

const auto on_device = []<class T>(T) {
  return [](const auto& operands, auto call) { return run_on_device<T>(operands, call); };
};

TYPED_TEST(Pool2dCuda, MaximumIsExact) {
  const auto check = [](const PoolCase& p) {
    const auto [found, expected] = run_max_pool(p, on_device(TypeParam{}));
    EXPECT_LE(relative_error(found[2], expected[2]), 0);
    EXPECT_EQ(found[3], found[2]);
    EXPECT_LE(relative_error(found[4], expected[4]), 0);
    EXPECT_LE(relative_error(found[5], expected[5]), 0);
  };
  for_each_pool(kPools, check);
  for_each_pool(kLargerPools, check);
}

TYPED_TEST(Pool2dCuda, AverageAgreesWithFloat64) {
  const auto check = [](const PoolCase& p) {
    const auto [found, expected] = run_average_pool(p, on_device(TypeParam{}));
    EXPECT_LE(relative_error(found[2], expected[2]), storage_error<TypeParam>());
    EXPECT_LE(relative_error(found[3], expected[3]), storage_error<TypeParam>());
  };
  for_each_pool(kPools, check);
  for_each_pool(kLargerPools, check);
}

TYPED_TEST(Pool2dCuda, GlobalAverageAgreesWithFloat64) {
  for (const Shape& in :
       {Shape{0, 4, 4, 3}, Shape{2, 1, 1, 5}, Shape{3, 4, 4, 512}, Shape{5, 3, 7, 19},
        Shape{1, 2, 3, 8}, Shape{2, 7, 7, 264}, Shape{2, 40, 31, 16}})
    for (const Write write : {Write::kOverwrite, Write::kAdd}) {
      SCOPED_TRACE(in.to_string());
      const auto [found, expected] = run_global_pool(in, write, on_device(TypeParam{}));
      EXPECT_LE(relative_error(found[2], expected[2]), storage_error<TypeParam>());
      EXPECT_LE(relative_error(found[3], expected[3]), storage_error<TypeParam>());
    }
}

TYPED_TEST(Pool2dCuda, TheFirstOfEqualsWinsAndANanWinsOverAll) {
  expect_first_of_equals(on_device(TypeParam{}));
}

// More places than the largest grid has threads.
TYPED_TEST(Pool2dCuda, LoopsPastTheGrid) {
  const Pool2dGeometry g{750, 731, 1, 1, 1, 0};
  const Shape shape{1, 750, 731, 1};
  const Operand<float> x = random_operand(shape, 1);
  const auto device_x = to_device<TypeParam>(shape, x.values),
             y = to_device<TypeParam>(shape, std::vector<float>(x.values.size(), 9));
  DeviceContext c;
  max_pool2d_forward(c.context, {.geometry = g, .x = device_x.view(), .y = y.view()});
  c.finish();
  EXPECT_EQ(as_floats(y.values()), as_floats(device_x.values()));
}

}  // namespace
}  // namespace engine::ops
