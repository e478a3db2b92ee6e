// Computes an approximation of the nearest semi-orthogonal matrix, for the momentum of Muon.
#pragma once

#include <cstddef>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

std::size_t orthogonalize_scratch_bytes(std::int64_t rows, std::int64_t columns, DType dtype,
                                        Device::Kind device = Device::Kind::kCpu);

// `matrix` [rows, columns], f32 or f64, becomes U S V^T, where U and V are those of its singular
// value decomposition and S is diagonal and near 1: `steps` iterations of
//   A = X X^T;  X = 3.4445 X + (-4.7750 A + 2.0315 A A) X,
// from X = matrix / (Euclidean norm + 1e-7), transposed if rows > columns (Newton-Schulz, with the
// coefficients of Jordan et al., 2024, who compute in bf16). A matrix of zeros stays zero. On the
// CPU the bits are the same for every instruction set and number of threads, since every element is
// one sum in order, with each operation rounded separately. On a CUDA device they are the same in
// every run on the same model of device.
void orthogonalize(KernelContext& context, int steps, TensorView matrix);

}  // namespace engine::ops
