// The rotary position embedding on a CUDA device against the float64 reference, for every storage.
#include "tests/engine/ops/device/cuda_test_support.h"
#include "tests/engine/ops/rotary/rotary_cases.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class RotaryCuda : public CudaTest {};
TYPED_TEST_SUITE(RotaryCuda, Storages);

template <class T>
void compare_rotary(const RotarySetting& s, bool back, Write write) {
  SCOPED_TRACE(s.text() + (write == Write::kAdd ? ", added" : ""));
  const Operand<float> x = random_operand(s.shape, 1), start = output(s.shape, write);
  Operand<double> wide_x = kept<T>(x), wide_y = kept<T>(start);
  Context host(1, rotary_scratch_bytes(s.shape[1], s.size, Device::Kind::kCpu));
  rotary(host.context, s.call(wide_x.view(), wide_y.view(), back, write));
  DeviceContext c(rotary_scratch_bytes(s.shape[1], s.size, kDevice.kind));
  const DeviceOperand<T> from = to_device_as<T>(x), to = to_device_as<T>(start);
  rotary(c.context, s.call(from.view(), to.view(), back, write));
  c.finish();
  EXPECT_LE(relative_error(as_floats(to.values()), wide_y.values), storage_error<T>());
  if (write == Write::kAdd) return;
  rotary(c.context, s.call(from.view(), from.view(), back, write));
  c.finish();
  EXPECT_EQ(as_floats(from.values()), as_floats(to.values()));
}

TYPED_TEST(RotaryCuda, AgreesWithTheReference) {
  for (const RotarySetting& s : kRotaries)
    for (const bool back : {false, true})
      for (const Write write : {Write::kOverwrite, Write::kAdd})
        compare_rotary<TypeParam>(s, back, write);
}

class RotaryDevice : public CudaTest {};

TEST_F(RotaryDevice, MoreSamplesWithFirstPositionsThanALaunchHas) {
  RotarySetting s{{70, 2, 24}, 2, 8};
  for (std::int64_t i = 0; i < 70; ++i) s.first_positions.push_back(3 * i);
  compare_rotary<float>(s, false, Write::kOverwrite);
}

}  // namespace
}  // namespace engine::ops
