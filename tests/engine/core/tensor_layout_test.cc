// Orders in memory and in files hold the same elements.
#include "engine/core/tensor_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <utility>
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

// Every order of four dimensions, larger than the tiles that are copied, with one of one element,
// for every size of an element.
TEST(TensorLayout, EveryOrderGoesWhereTheDimensionsSay) {
  std::array<int, 4> order{0, 1, 2, 3};
  do {
    for (const Shape& shape : {Shape{3, 40, 5, 2}, Shape{37, 1, 2, 45}, Shape{1, 5, 1, 3}}) {
      TensorLayout layout{.file_shape = shape};
      std::copy(order.begin(), order.end(), layout.permutation.begin());
      const Shape memory_shape = layout.memory_shape();
      const auto check = [&]<class T>(T) {
        const auto count = static_cast<std::size_t>(shape.count());
        std::vector<T> file(count), memory(count), back(count);
        std::iota(file.begin(), file.end(), T{0});
        layout.to_memory(file.data(), memory.data(), sizeof(T));
        layout.to_file(memory.data(), back.data(), sizeof(T));
        ASSERT_EQ(file, back);
        for (const std::int64_t at_once : {1, 3, 16}) {
          std::vector<T> parts(count);
          for (std::int64_t row = 0; row < shape[0]; row += at_once)
            layout.rows_to_memory(&file[static_cast<std::size_t>(row * shape.count() / shape[0])],
                                  row, std::min(at_once, shape[0] - row), parts.data(), sizeof(T));
          ASSERT_EQ(parts, memory) << at_once;
        }
        for (std::size_t m = 0; m < count; ++m) {
          std::array<std::int64_t, 4> at{};  // in the file
          for (auto [d, rest] = std::pair(3, static_cast<std::int64_t>(m)); d >= 0; --d) {
            at[static_cast<std::size_t>(order[static_cast<std::size_t>(d)])] =
                rest % memory_shape[d];
            rest /= memory_shape[d];
          }
          const std::int64_t f = ((at[0] * shape[1] + at[1]) * shape[2] + at[2]) * shape[3] + at[3];
          ASSERT_EQ(memory[m], file[static_cast<std::size_t>(f)]);
        }
      };
      check(std::uint8_t{});
      check(std::uint16_t{});
      check(std::uint32_t{});
      check(std::uint64_t{});
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(TensorLayout, AScalarAndAnEmptyTensorWork) {
  double from = 3, to = 0;
  TensorLayout::plain({}).to_memory(&from, &to, sizeof from);
  EXPECT_EQ(to, 3);
  TensorLayout::plain({}).rows_to_memory(&from, 0, 1, &to, sizeof from);
  EXPECT_EQ(to, 3);
  TensorLayout::plain({0, 4}).rows_to_memory(&from, 0, 0, &to, sizeof from);
  TensorLayout::plain({0, 4}).to_memory(&from, &to, sizeof from);
  EXPECT_EQ(to, 3);
}

}  // namespace
}  // namespace engine
