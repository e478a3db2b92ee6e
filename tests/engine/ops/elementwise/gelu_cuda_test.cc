// gelu on a CUDA device against the float64 reference, for every storage; large, infinite and
// missing numbers.
#include "engine/ops/elementwise/gelu.h"

#include "tests/engine/ops/device/device_runs.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class GeluCuda : public CudaTest {};
TYPED_TEST_SUITE(GeluCuda, Storages);

TYPED_TEST(GeluCuda, AgreesWithTheReference) {
  for (const Shape& shape :
       {Shape{0, 7}, Shape{1}, Shape{3, 65}, Shape{2, 2048}, Shape{70, 8, 129}})
    for (const GeluKind kind : {GeluKind::kExact, GeluKind::kTanh})
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(shape.to_string());
        Operand<float> x = random_operand(shape, 1);
        for (float& value : x.values) value *= 5;
        std::vector<StateOf<TypeParam>> aligned;
        const Given operands[] = {x, random_operand(shape, 2), output(shape, write), nothing(shape),
                                  x};
        for (const std::int64_t shift : {0, 3}) {
          const auto [found, expected] = run_on_device<TypeParam>(
              operands,
              [&](KernelContext& c, TensorView from, TensorView dy, TensorView dx, TensorView y,
                  TensorView in_place) {
                gelu_forward(c, from, kind, y);
                gelu_backward(c, from, dy, kind, dx, write);
                gelu_forward(c, in_place, kind, in_place);
              },
              shift);
          EXPECT_LE(relative_error(found[3], expected[3]), storage_error<TypeParam>());
          EXPECT_LE(relative_error(found[2], expected[2], 0.01), storage_error<TypeParam>());
          EXPECT_EQ(found[4], found[3]);
          if (shift == 0) aligned = found[3];
          EXPECT_EQ(found[3], aligned);  // addresses need not be aligned
        }
      }
}

class GeluCudaRange : public CudaTest {};

TEST_F(GeluCudaRange, LargeNumbersHaveSlopesOfZeroAndOne) {
  for (const GeluKind kind : {GeluKind::kExact, GeluKind::kTanh}) {
    DeviceContext c;
    const auto x = to_device<float>({7}, {-1e30f, -1e9f, -30, 30, 1e9f, 1e30f, NAN}),
               dy = to_device<float>({7}, {1, 1, 1, 1, 1, 1, 1}),
               y = to_device<float>({7}, {1, 1, 1, 1, 1, 1, 1});
    gelu_forward(c.context, x.view(), kind, y.view());
    gelu_backward(c.context, x.view(), dy.view(), kind, dy.view(), Write::kOverwrite);
    c.finish();
    const std::vector<float> values = y.values(), slopes = dy.values();
    for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(slopes[i], i < 3 ? 0 : 1, 1e-6) << i;
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(values[i], 0) << i;
    EXPECT_EQ(values[3], 30);
    EXPECT_EQ(values[5], 1e30f);
    EXPECT_TRUE(std::isnan(values[6]) && std::isnan(slopes[6]));
  }
}

}  // namespace
}  // namespace engine::ops
