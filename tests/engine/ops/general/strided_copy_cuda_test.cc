// Strided copies on a CUDA device: exact, for every storage and kind of loop; the rest of y keeps
// its numbers.
#include "engine/ops/general/strided_copy.h"

#include "tests/engine/ops/device/device_runs.h"
#include "tests/engine/ops/general/general_cases.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class StridedCopyCuda : public CudaTest {};
TYPED_TEST_SUITE(StridedCopyCuda, Storages);

TYPED_TEST(StridedCopyCuda, AgreesWithTheHost) {
  for (const CopyCase& each : kCopies)
    for (const Write write : {Write::kOverwrite, Write::kAdd})
      for (const double scale : {1.0, 0.5}) {
        SCOPED_TRACE(each.name);
        const Given operands[] = {random_operand({20000}, 1), random_operand({20000}, 2)};
        const auto [found, expected] =
            run_on_device<TypeParam>(operands, [&](KernelContext& c, TensorView x, TensorView y) {
              strided_copy(c, {.x = x,
                               .y = y,
                               .axes = each.axes,
                               .x_first = each.x_first,
                               .y_first = each.y_first,
                               .scale = scale,
                               .write = write});
            });
        EXPECT_LE(relative_error(found[1], expected[1]),
                  write == Write::kAdd ? storage_error<TypeParam>() : 0);
      }
}

}  // namespace
}  // namespace engine::ops
