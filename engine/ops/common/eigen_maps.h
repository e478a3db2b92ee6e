// Memory seen as Eigen's arrays and matrices. Only for sources compiled once per instruction set
// (simd.h): Eigen's namespace is another one in each.
#pragma once

#include <cstdint>

#include "engine/ops/common/simd.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

// `count` floats from `p` on, at any address.
ENGINE_INLINE Eigen::Map<Eigen::ArrayXf> array_at(float* p, std::int64_t count) {
  return {p, count};
}
ENGINE_INLINE Eigen::Map<const Eigen::ArrayXf> array_at(const float* p, std::int64_t count) {
  return {p, count};
}

// Rows of doubles side by side, `stride` apart.
using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Rows = Eigen::Map<Matrix, Eigen::Unaligned, Eigen::OuterStride<>>;
using ConstRows = Eigen::Map<const Matrix, Eigen::Unaligned, Eigen::OuterStride<>>;

ENGINE_INLINE Rows rows_at(double* p, std::int64_t rows, std::int64_t columns,
                           std::int64_t stride) {
  return Rows(p, rows, columns, Eigen::OuterStride<>(stride));
}
ENGINE_INLINE ConstRows rows_at(const double* p, std::int64_t rows, std::int64_t columns,
                                std::int64_t stride) {
  return ConstRows(p, rows, columns, Eigen::OuterStride<>(stride));
}

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
