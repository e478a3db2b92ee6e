// Channel padding on a CUDA device: exact, for every storage.
#include "engine/ops/pool/pad_channels.h"
#include "tests/engine/ops/device/device_runs.h"

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
        const Given operands[] = {random_operand(in, 1), random_operand(out, 2), nothing(out),
                                  output(in, write)};
        const auto [found, expected] = run_on_device<TypeParam>(
            operands,
            [&](KernelContext& c, TensorView x, TensorView dy, TensorView y, TensorView dx) {
              pad_channels_forward(c, {before, x, y});
              pad_channels_backward(c, {before, dy, dx, write});
            });
        EXPECT_LE(relative_error(found[2], expected[2]), 0);
        EXPECT_LE(relative_error(found[3], expected[3]),
                  write == Write::kAdd ? storage_error<TypeParam>() : 0);
      }
}

}  // namespace
}  // namespace engine::ops
