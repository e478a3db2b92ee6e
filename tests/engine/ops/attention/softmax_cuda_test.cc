// The softmax of rows on a CUDA device against float64 on the host, for every storage: rows in
// registers and longer ones, aligned and others, outputs over inputs.
#include "engine/ops/attention/softmax.h"

#include "tests/engine/ops/device/device_runs.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class SoftmaxCuda : public CudaTest {};
TYPED_TEST_SUITE(SoftmaxCuda, Storages);

TYPED_TEST(SoftmaxCuda, AgreesWithFloat64) {
  for (const Shape& shape : {Shape{0, 8}, Shape{1, 1}, Shape{3, 7}, Shape{2, 9, 64}, Shape{5, 197},
                             Shape{3, 256}, Shape{2, 1000}, Shape{2, 1100}, Shape{1, 2051}})
    for (const Write write : {Write::kOverwrite, Write::kAdd})
      for (const std::int64_t shift : {0, 3}) {
        SCOPED_TRACE(shape.to_string());
        Operand<float> x = random_operand(shape, 1);
        for (float& value : x.values) value *= 4;
        const Operand<float> y = random_operand(shape, 4), dy = random_operand(shape, 2);
        const Given operands[] = {x, nothing(shape), y, dy, output(shape, write), x, dy};
        const auto [found, expected] = run_on_device<TypeParam>(
            operands,
            [&](KernelContext& c, TensorView from, TensorView to, TensorView given,
                TensorView slopes, TensorView dx, TensorView same_x, TensorView same_dy) {
              softmax_forward(c, from, to);
              softmax_backward(c, given, slopes, dx, write);
              softmax_forward(c, same_x, same_x);
              softmax_backward(c, given, same_dy, same_dy, Write::kOverwrite);
            },
            shift);
        EXPECT_LE(relative_error(found[1], expected[1]), storage_error<TypeParam>());
        EXPECT_LE(relative_error(found[4], expected[4]), storage_error<TypeParam>());
        EXPECT_EQ(found[5], found[1]);
        if (write == Write::kOverwrite) {
          EXPECT_EQ(found[6], found[4]);
        }
      }
}

class SoftmaxCudaRange : public CudaTest {};

// As on the CPU (softmax_test.cc).
TEST_F(SoftmaxCudaRange, OfInfinitiesAndNaN) {
  for (const std::int64_t width : {3, 70, 1100}) {
    std::size_t place = 1;
    const auto softmax_of = [&](float one, float rest) {
      std::vector<float> values(static_cast<std::size_t>(width), rest);
      values[place] = one;
      const auto x = to_device<float>({1, width}, values);
      DeviceContext c;
      softmax_forward(c.context, x.view(), x.view());
      c.finish();
      return x.values();
    };
    EXPECT_EQ(softmax_of(3, -INFINITY)[0], 0);
    EXPECT_EQ(softmax_of(3, -INFINITY)[1], 1);
    for (const float value : softmax_of(-INFINITY, -INFINITY)) EXPECT_TRUE(std::isnan(value));
    for (place = 0; place < static_cast<std::size_t>(width); place += place < 64 ? 1 : 61)
      for (const float value : softmax_of(NAN, 1)) ASSERT_TRUE(std::isnan(value)) << place;
  }
}

}  // namespace
}  // namespace engine::ops
