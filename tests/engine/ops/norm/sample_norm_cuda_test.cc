// Normalization by layer and by group on a CUDA device against the float64 reference, for every
// storage, with aligned rows and others.
#include "tests/engine/ops/device/cuda_test_support.h"
#include "tests/engine/ops/norm/norm_cases.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class SampleNormCuda : public CudaTest {};
TYPED_TEST_SUITE(SampleNormCuda, Storages);

// Expects the gradients of `found` to be those of the reference, as far as the storage T keeps
// them.
template <class T, class Found>
void expect_gradients(const Found& found, const SampleNorm<Operand<double>>& wide) {
  EXPECT_LE(relative_error(as_floats(found.dx.values()), wide.dx.values, 1e-2), storage_error<T>());
  EXPECT_LE(relative_error(found.dgamma.values(), wide.dgamma.values), state_error<T>());
  EXPECT_LE(relative_error(found.dbeta.values(), wide.dbeta.values), state_error<T>());
}

template <class T>
void compare(const SampleNormSetting& setting, Write write) {
  SCOPED_TRACE(setting.shape.to_string() + ", groups " + std::to_string(setting.groups) +
               (write == Write::kAdd ? ", added" : ""));
  const bool groups = setting.groups > 0;
  const SampleNorm<Operand<float>> start = sample_norm(setting, write);
  SampleNorm<Operand<double>> wide = start.as(kept<T>, widen);
  Context host(1, 0);
  wide.forward(host.context);
  wide.backward(host.context, write);

  DeviceContext c(groups ? group_norm_scratch_bytes(setting.shape, DTypeOf<T>::value, kDevice.kind)
                         : layer_norm_scratch_bytes(start.gamma.shape[0], kDevice.kind));
  auto device = start.as(to_device_as<T>, to_device_as<StateOf<T>>);
  const DeviceOperand<T> without = to_device_as<T>(start.y);
  device.forward(c.context);
  device.forward(c.context, without.view(), {});
  device.backward(c.context, write);
  c.finish();
  EXPECT_LE(relative_error(as_floats(device.y.values()), wide.y.values), storage_error<T>());
  EXPECT_EQ(as_floats(device.y.values()), as_floats(without.values()));
  EXPECT_LE(relative_error(device.statistics.values(), wide.statistics.values), state_error<T>());
  expect_gradients<T>(device, wide);
  const auto dx = as_floats(device.dx.values());
  if (!groups) {
    auto parts = start.as(to_device_as<T>, to_device_as<StateOf<T>>);
    parts.forward(c.context);
    parts.backward_data(c.context, write, parts.dx.view());
    parts.backward_parameters(c.context, write);
    c.finish();
    expect_gradients<T>(parts, wide);
  }
  if (write == Write::kAdd) return;
  if (groups)
    device.backward(c.context, write, device.dy.view());
  else
    device.backward_data(c.context, write, device.dy.view());
  c.finish();
  EXPECT_EQ(as_floats(device.dy.values()), dx);
}

TYPED_TEST(SampleNormCuda, AgreesWithTheReference) {
  for (const Write write : {Write::kOverwrite, Write::kAdd}) {
    for (const std::int64_t width : {1, 48, 65, 128, 384, 520, 777, 1024, 2304})
      compare<TypeParam>({{width > 500 ? 3 : 21, width}}, write);
    for (const SampleNormSetting& setting : {SampleNormSetting{{0, 3, 3, 8}, 2},
                                             {{1, 1, 1, 2}, 1},
                                             {{2, 5, 7, 6}, 3},
                                             {{3, 9, 9, 33}, 11},
                                             {{2, 3, 3, 40}, 1},
                                             {{3, 2, 2, 12}, 12},
                                             {{5, 7, 130}, 10}})
      compare<TypeParam>(setting, write);
  }
}

// No rows, more rows than slices of the least length, and stages of residual networks.
TYPED_TEST(SampleNormCuda, SumsOverManyRowsAndOverNone) {
  for (const Write write : {Write::kOverwrite, Write::kAdd}) {
    compare<TypeParam>({{0, 48}}, write);
    compare<TypeParam>({{1100, 40}}, write);
  }
  compare<TypeParam>({{8300, 8}}, Write::kAdd);
  compare<TypeParam>({{9, 32, 32, 16}, 4}, Write::kAdd);
  compare<TypeParam>({{2, 28, 28, 64}, 32}, Write::kOverwrite);
}

}  // namespace
}  // namespace engine::ops
