// Resizing, and vectors at every pixel, on a CUDA device for every storage.
#include "engine/ops/windows/resize.h"

#include "engine/ops/windows/pixel_vectors.h"
#include "tests/engine/ops/device/device_runs.h"
#include "tests/engine/ops/windows/resize_cases.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class ResizeCuda : public CudaTest {};
TYPED_TEST_SUITE(ResizeCuda, Storages);

TYPED_TEST(ResizeCuda, AgreesWithTheHost) {
  for (const ResizeCase& r : kResizes)
    for (const Write write : {Write::kOverwrite, Write::kAdd}) {
      SCOPED_TRACE(r.x().to_string() + " to " + r.y().to_string());
      const Given operands[] = {random_operand(r.x(), 1), random_operand(r.y(), 2), nothing(r.y()),
                                output(r.x(), write)};
      const auto [found, expected] = run_on_device<TypeParam>(
          operands,
          [&](KernelContext& c, TensorView x, TensorView dy, TensorView y, TensorView dx) {
            resize_forward(c, {r.rows, r.columns, x, y});
            resize_backward(c, {r.rows, r.columns, dy, dx, write});
          });
      EXPECT_LE(relative_error(found[2], expected[2]), storage_error<TypeParam>());
      EXPECT_LE(relative_error(found[3], expected[3]), storage_error<TypeParam>());
    }
}

template <class T>
class PixelVectorsCuda : public CudaTest {};
TYPED_TEST_SUITE(PixelVectorsCuda, Storages);

TYPED_TEST(PixelVectorsCuda, AreAtEveryPixel) {
  for (const Shape& shape : {Shape{2, 3, 5, 7}, {1, 1, 1, 1}, {3, 4, 4, 64}, {0, 2, 2, 3}}) {
    const Given operands[] = {state(random_operand({shape[3]}, 1)), nothing(shape)};
    const auto [found, expected] = run_on_device<TypeParam>(
        operands,
        [&](KernelContext& c, TensorView vector, TensorView y) { fill_pixels(c, vector, y); });
    EXPECT_LE(relative_error(found[1], expected[1]), storage_error<TypeParam>())
        << shape.to_string();
  }
}

}  // namespace
}  // namespace engine::ops
