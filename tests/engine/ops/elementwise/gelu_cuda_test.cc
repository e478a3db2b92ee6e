// gelu on a CUDA device against the float64 reference, for every storage; large, infinite and
// missing numbers.
#include "engine/ops/elementwise/gelu.h"

#include "tests/engine/ops/device/cuda_test_support.h"

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
        const Operand<float> dy = random_operand(shape, 2), start = random_operand(shape, 3);
        Operand<double> wide_x = kept<TypeParam>(x), wide_dy = kept<TypeParam>(dy),
                        dx = kept<TypeParam>(start), y(shape, 0);
        Context host(1, 0);
        gelu_forward(host.context, wide_x.view(), kind, y.view());
        gelu_backward(host.context, wide_x.view(), wide_dy.view(), kind, dx.view(), write);

        DeviceContext c;
        const auto device_x = to_device<TypeParam>(shape, x.values),
                   device_dy = to_device<TypeParam>(shape, dy.values),
                   device_dx = to_device<TypeParam>(shape, start.values),
                   device_y = to_device<TypeParam>(shape, std::vector<float>(x.values.size(), NAN));
        gelu_forward(c.context, device_x.view(), kind, device_y.view());
        gelu_backward(c.context, device_x.view(), device_dy.view(), kind, device_dx.view(), write);
        gelu_forward(c.context, device_x.view(), kind, device_x.view());  // in place
        c.finish();
        EXPECT_LE(relative_error(as_floats(device_y.values()), y.values),
                  storage_error<TypeParam>());
        EXPECT_LE(relative_error(as_floats(device_dx.values()), dx.values, 0.01),
                  storage_error<TypeParam>());
        EXPECT_EQ(as_floats(device_x.values()), as_floats(device_y.values()));
      }
}

TYPED_TEST(GeluCuda, AddressesNeedNotBeAligned) {
  const Operand<float> x = random_operand({40}, 1);
  DeviceContext c;
  const auto device_x = to_device<TypeParam>({40}, x.values),
             whole = to_device<TypeParam>({40}, x.values),
             part = to_device<TypeParam>({40}, x.values);
  TensorView from = device_x.view(), to = part.view();
  from.shape = to.shape = {37};
  from.data = from.as<TypeParam>() + 3, to.data = to.as<TypeParam>() + 3;
  gelu_forward(c.context, device_x.view(), GeluKind::kTanh, whole.view());
  gelu_forward(c.context, from, GeluKind::kTanh, to);
  c.finish();
  std::vector<float> found = as_floats(part.values()), expected = as_floats(whole.values());
  EXPECT_EQ(std::vector<float>(found.begin() + 3, found.end()),
            std::vector<float>(expected.begin() + 3, expected.end()));
  EXPECT_EQ(found[2], to_float(from_float<TypeParam>(x.values[2])));
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
