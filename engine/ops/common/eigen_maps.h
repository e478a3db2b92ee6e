// Views of memory as Eigen matrices. Only for sources compiled once per instruction set
// (simd.h), because each of them has its own Eigen namespace.
#pragma once

#include <cstdint>

#include "engine/ops/common/simd.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

// Rows of doubles at a distance of `stride`.
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
