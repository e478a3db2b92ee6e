// Orders in memory and in files hold the same elements.
#include "engine/core/tensor_layout.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace engine {
namespace {

TEST(TensorLayout, ConvolutionWeightsGoFromOihwToHwioAndBack) {
  const TensorLayout layout{.file_shape = {4, 3, 5, 2}, .permutation = {2, 3, 1, 0}};
  EXPECT_EQ(layout.memory_shape(), (Shape{5, 2, 3, 4}));
  std::vector<float> file(120), memory(120), back(120);
  std::iota(file.begin(), file.end(), 0.f);
  layout.to_memory(file.data(), memory.data(), sizeof(float));
  // Element (o=2, i=1, h=4, w=1) of the file.
  EXPECT_EQ(memory[((4 * 2 + 1) * 3 + 1) * 4 + 2], file[((2 * 3 + 1) * 5 + 4) * 2 + 1]);
  layout.to_file(memory.data(), back.data(), sizeof(float));
  EXPECT_EQ(file, back);
}

TEST(TensorLayout, PlainIsTheIdentityInAnyElementSize) {
  const TensorLayout layout = TensorLayout::plain({3, 7});
  std::vector<double> file(21), memory(21);
  std::iota(file.begin(), file.end(), 0.0);
  layout.to_memory(file.data(), memory.data(), sizeof(double));
  EXPECT_EQ(file, memory);
}

TEST(TensorLayout, AScalarAndAnEmptyTensorWork) {
  double from = 3, to = 0;
  TensorLayout::plain({}).to_memory(&from, &to, sizeof from);
  EXPECT_EQ(to, 3);
  TensorLayout::plain({0, 4}).to_memory(&from, &to, sizeof from);
  EXPECT_EQ(to, 3);
}

}  // namespace
}  // namespace engine
