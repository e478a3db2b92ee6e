// Channel shuffles on a CUDA device: exact, for every storage.
#include "engine/ops/pool/shuffle_channels.h"
#include "tests/engine/ops/device/device_runs.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class ShuffleChannelsCuda : public CudaTest {};
TYPED_TEST_SUITE(ShuffleChannelsCuda, Storages);

TYPED_TEST(ShuffleChannelsCuda, AgreesWithTheReference) {
  for (const Shape& shape :
       {Shape{0, 3, 3, 4}, Shape{1, 1, 1, 1}, Shape{3, 5, 7, 18}, Shape{2, 8, 8, 64}, Shape{5, 12}})
    for (const std::int64_t groups : {1, 2, 3, 6})
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        if (shape.dims().back() % groups != 0) continue;
        SCOPED_TRACE(shape.to_string() + " " + std::to_string(groups));
        const Given operands[] = {random_operand(shape, 1), output(shape, write)};
        const auto [found, expected] =
            run_on_device<TypeParam>(operands, [&](KernelContext& c, TensorView x, TensorView y) {
              shuffle_channels(c, {.groups = groups, .x = x, .y = y, .write = write});
            });
        EXPECT_LE(relative_error(found[1], expected[1]),
                  write == Write::kAdd ? storage_error<TypeParam>() : 0);
      }
}

}  // namespace
}  // namespace engine::ops
