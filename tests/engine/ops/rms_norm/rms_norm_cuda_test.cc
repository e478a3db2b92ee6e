// RMS normalization on a CUDA device against the float64 reference, for every storage, of rows and
// of parts of them, aligned and others.
#include "tests/engine/ops/device/cuda_test_support.h"
#include "tests/engine/ops/rms_norm/rms_norm_cases.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class RmsNormCuda : public CudaTest {};
TYPED_TEST_SUITE(RmsNormCuda, Storages);

template <class T>
void compare_rms_norm(const RmsNormSetting& setting, Write write) {
  SCOPED_TRACE(setting.text() + (write == Write::kAdd ? ", added" : ""));
  const RmsNormCase<Operand<float>> start = rms_norm_case(setting, write);
  RmsNormCase<Operand<double>> wide = start.as(kept<T>, widen);
  Context host(1, 0);
  wide.forward(host.context);
  wide.backward(host.context, write);

  DeviceContext c(rms_norm_scratch_bytes(setting.gamma(), kDevice.kind));
  auto device = start.as(to_device_as<T>, to_device_as<StateOf<T>>);
  const DeviceOperand<T> without = to_device_as<T>(start.y);
  device.forward(c.context);
  device.forward(c.context, without.view(), {});
  device.backward(c.context, write);
  c.finish();
  EXPECT_LE(relative_error(as_floats(device.y.values()), wide.y.values), storage_error<T>());
  EXPECT_EQ(as_floats(device.y.values()), as_floats(without.values()));
  EXPECT_LE(relative_error(device.inverse_rms.values(), wide.inverse_rms.values), state_error<T>());
  EXPECT_LE(relative_error(as_floats(device.dx.values()), wide.dx.values, 1e-2),
            storage_error<T>());
  EXPECT_LE(relative_error(device.dgamma.values(), wide.dgamma.values), state_error<T>());
  if (write == Write::kAdd) return;
  const auto dx = as_floats(device.dx.values()), dgamma = device.dgamma.values();
  device.backward(c.context, write, {});
  c.finish();
  EXPECT_LE(relative_error(device.dgamma.values(), wide.dgamma.values), state_error<T>());
  device.backward(c.context, write, device.dy.view());
  c.finish();
  EXPECT_EQ(device.dgamma.values(), dgamma);
  const auto in_place = as_floats(device.dy.values());
  const std::int64_t stride = setting.shape[setting.shape.rank() - 1];
  for (std::size_t i = 0; i < dx.size(); ++i)
    if (setting.has(static_cast<std::int64_t>(i) % stride)) {
      ASSERT_EQ(in_place[i], dx[i]) << i;
    }
}

TYPED_TEST(RmsNormCuda, AgreesWithTheReference) {
  for (const Write write : {Write::kOverwrite, Write::kAdd})
    for (const RmsNormSetting& setting : kRmsNorms) compare_rms_norm<TypeParam>(setting, write);
}

// More rows than slices of the least length.
TYPED_TEST(RmsNormCuda, SumsOverManyRows) {
  compare_rms_norm<TypeParam>({{8300, 8}}, Write::kAdd);
  compare_rms_norm<TypeParam>({{1100, 40}, 16, {0, 2}}, Write::kOverwrite);
}

}  // namespace
}  // namespace engine::ops
