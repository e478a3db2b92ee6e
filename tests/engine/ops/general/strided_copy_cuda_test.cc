// Strided copies on a CUDA device for every storage and kind of loop, exact without a scale; the
// rest of y keeps its numbers.
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
                  write == Write::kAdd || scale != 1 ? storage_error<TypeParam>() : 0);
      }
}

// More matrices than a launch has blocks, so that a block uses its tile again.
TYPED_TEST(StridedCopyCuda, ABlockTransposesSeveralTiles) {
  constexpr std::int64_t kMatrices = 2200, kSide = 8, kEach = kSide * kSide;
  const Given operands[] = {random_operand({kMatrices * kEach}, 1),
                            random_operand({kMatrices * kEach}, 2)};
  const auto [found, expected] =
      run_on_device<TypeParam>(operands, [&](KernelContext& c, TensorView x, TensorView y) {
        const Axes<2> axes =
            axes_of<2>({{kMatrices, {kEach, kEach}}, {kSide, {kSide, 1}}, {kSide, {1, kSide}}});
        strided_copy(c, {.x = x, .y = y, .axes = axes});
      });
  EXPECT_EQ(relative_error(found[1], expected[1]), 0);
}

}  // namespace
}  // namespace engine::ops
