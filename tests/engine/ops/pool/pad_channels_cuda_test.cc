// Channel padding on a CUDA device: exact, for every storage.
#include "engine/ops/pool/pad_channels.h"
#include "tests/engine/ops/device/cuda_test_support.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class PadChannelsCuda : public CudaTest {};
TYPED_TEST_SUITE(PadChannelsCuda, Storages);

TYPED_TEST(PadChannelsCuda, AgreesWithTheReference) {
  for (const Shape& in :
       {Shape{0, 3, 3, 4}, Shape{1, 1, 1, 1}, Shape{3, 5, 7, 17}, Shape{2, 8, 8, 64}})
    for (const std::int64_t before : {0, 3})
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(in.to_string() + " " + std::to_string(before));
        const Shape out{in[0], in[1], in[2], before + in[3] + 5};
        const Operand<float> x = random_operand(in, 1), dy = random_operand(out, 2),
                             start = random_operand(in, 3);
        Operand<double> wide_x = kept<TypeParam>(x), wide_y(out, 7), wide_dy = kept<TypeParam>(dy),
                        wide_dx = kept<TypeParam>(start);
        Context host(1, 0);
        pad_channels_forward(host.context,
                             {.before = before, .x = wide_x.view(), .y = wide_y.view()});
        pad_channels_backward(
            host.context,
            {.before = before, .dy = wide_dy.view(), .dx = wide_dx.view(), .write = write});

        DeviceContext c;
        const auto device_x = to_device<TypeParam>(in, x.values),
                   device_dy = to_device<TypeParam>(out, dy.values),
                   device_dx = to_device<TypeParam>(in, start.values);
        const DeviceOperand<TypeParam> device_y(out, std::vector<TypeParam>(dy.values.size()));
        pad_channels_forward(c.context,
                             {.before = before, .x = device_x.view(), .y = device_y.view()});
        pad_channels_backward(
            c.context,
            {.before = before, .dy = device_dy.view(), .dx = device_dx.view(), .write = write});
        c.finish();
        EXPECT_LE(relative_error(as_floats(device_y.values()), wide_y.values), 0);
        EXPECT_LE(relative_error(as_floats(device_dx.values()), wide_dx.values),
                  write == Write::kAdd ? storage_error<TypeParam>() : 0);
      }
}

}  // namespace
}  // namespace engine::ops
