// Newton-Schulz on a CUDA device against float64 on the CPU.
#include "engine/ops/optim_step/orthogonalize.h"

#include <cmath>

#include "tests/engine/ops/device/cuda_test_support.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

class OrthogonalizeCuda : public CudaTest {
 protected:
  template <class T = float>
  static std::vector<T> on_device(const Operand<float>& start, int steps,
                                  Products products = Products::kF32) {
    const Shape& s = start.shape;
    const auto matrix = to_device_as<T>(start);
    DeviceContext c(orthogonalize_scratch_bytes(s[0], s[1], DTypeOf<T>::value, kDevice.kind),
                    products);
    orthogonalize(c.context, steps, matrix.view());
    c.finish();
    return matrix.values();
  }
};

// Wide, tall and square matrices, one part of the sum of squares or several.
TEST_F(OrthogonalizeCuda, AgreesWithFloat64) {
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                      {1, 9},
                                      {9, 1},
                                      {5, 3},
                                      {16, 16},
                                      {33, 70},
                                      {70, 33},
                                      {65, 128},
                                      {130, 64},
                                      {50, 300}})
    for (const int steps : {0, 1, 4, 5}) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns) + ", " +
                   std::to_string(steps) + " steps");
      const Operand<float> start = random_operand({rows, columns}, 1);
      Operand<double> wide = widen(start);
      Context host(1, orthogonalize_scratch_bytes(rows, columns, DType::kF64));
      orthogonalize(host.context, steps, wide.view());
      const std::vector<float> found = on_device(start, steps);
      EXPECT_EQ(far_apart(found, wide.values, 0, 2e-4), "");
      EXPECT_LE(relative_error(on_device<double>(start, steps), wide.values), 1e-10);
      // The precision of the model's products does not matter, nor does the run.
      EXPECT_EQ(on_device(start, steps, Products::kBF16), found);
    }
}

TEST_F(OrthogonalizeCuda, ZerosStayZerosAndNothingIsHidden) {
  Operand<float> matrix({4, 5}, 0);
  EXPECT_EQ(on_device(matrix, 5), matrix.values);
  matrix.values[7] = NAN;
  for (const float value : on_device(matrix, 5)) EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace engine::ops
