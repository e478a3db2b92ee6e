// Newton-Schulz: singular values near 1, float32 near float64, the same bits everywhere.
#include "engine/ops/optim_step/orthogonalize.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/engine/ops/common/kernel_test_support.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

constexpr int kSteps = 5;
const std::pair<std::int64_t, std::int64_t> kMatrixSizes[] = {
    {1, 1}, {1, 9}, {5, 3}, {16, 16}, {33, 70}, {70, 33}, {65, 128}};

template <class T>
void orthogonalize_all(Operand<T>& matrix, int threads) {
  const Shape& s = matrix.shape;
  Context c(threads, orthogonalize_scratch_bytes(s[0], s[1], DTypeOf<T>::value));
  orthogonalize(c.context, kSteps, matrix.view());
}

TEST(Orthogonalize, Float32AgreesWithFloat64OnEverySetting) {
  for (const auto& [rows, columns] : kMatrixSizes) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
    const Operand<float> start = random_operand({rows, columns}, 1);
    Operand<double> wide = widen(start);
    orthogonalize_all(wide, 2);
    std::vector<float> expected;
    for_each_setting([&](int threads) {
      Operand<float> narrow = start;
      orthogonalize_all(narrow, threads);
      EXPECT_EQ(far_apart(narrow.values, wide.values, 0, 2e-4), "");
      if (expected.empty()) expected = narrow.values;
      EXPECT_EQ(std::memcmp(expected.data(), narrow.values.data(), expected.size() * sizeof(float)),
                0);
    });
  }
}

// The coefficients leave singular values between about 0.7 and 1.2 (Jordan et al.); those of rows
// that are orthogonal at the start are the rows' lengths.
TEST(Orthogonalize, BringsSingularValuesNearOne) {
  Operand<double> matrix({3, 4}, 0);
  const double lengths[] = {1, 0.5, 0.1};
  for (std::size_t i = 0; i < 3; ++i) matrix.values[i * 5] = lengths[i];
  orthogonalize_all(matrix, 1);
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 4; ++j) {
      const double value = matrix.values[i * 4 + j];
      if (i != j)
        EXPECT_EQ(value, 0);
      else
        EXPECT_TRUE(value > 0.65 && value < 1.25) << value;
    }
}

TEST(Orthogonalize, TheTransposeGivesTheTranspose) {
  const Operand<double> start = widen(random_operand({6, 11}, 3));
  Operand<double> plain = start, turned({11, 6}, 0);
  for (std::size_t i = 0; i < 6; ++i)
    for (std::size_t j = 0; j < 11; ++j) turned.values[j * 6 + i] = start.values[i * 11 + j];
  orthogonalize_all(plain, 1);
  orthogonalize_all(turned, 1);
  for (std::size_t i = 0; i < 6; ++i)
    for (std::size_t j = 0; j < 11; ++j)
      EXPECT_NEAR(turned.values[j * 6 + i], plain.values[i * 11 + j], 1e-12);
}

TEST(Orthogonalize, ZerosStayZerosAndNothingIsHidden) {
  Operand<float> zeros({4, 5}, 0);
  orthogonalize_all(zeros, 1);
  for (const float value : zeros.values) EXPECT_EQ(value, 0);
  Operand<float> poisoned({4, 5}, 1);
  poisoned.values[7] = std::nanf("");
  orthogonalize_all(poisoned, 1);
  for (const float value : poisoned.values) EXPECT_TRUE(std::isnan(value));
}

TEST(Orthogonalize, RefusesWhatIsNoMatrixAndTooLittleScratch) {
  Operand<float> cube({2, 2, 2}, 1), square({2, 2}, 1);
  Context c(1, 1 << 12), none(1, 0);
  EXPECT_THROW(orthogonalize(c.context, kSteps, cube.view()), ShapeError);
  EXPECT_THROW(orthogonalize(none.context, kSteps, square.view()), Error);
}

}  // namespace
}  // namespace engine::ops
