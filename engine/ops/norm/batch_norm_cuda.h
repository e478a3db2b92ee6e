// Batch normalization on a CUDA device. batch_norm.h describes and batch_norm.cc checks the
// operands: x and operands of its shape have the storage type of activations, [channels] operands
// are f32, sums f64.
#pragma once

#include "engine/ops/norm/batch_norm.h"

namespace engine::ops::cuda {

// Grows with the number of rows.
std::size_t batch_norm_scratch_bytes(std::int64_t rows, std::int64_t channels, DType dtype);

void batch_norm_statistics(KernelContext& context, const TensorView& x, const TensorView& sums);
void batch_norm_finish_statistics(KernelContext& context, const BatchNormFinishStatistics& o);
void batch_norm_from_running(KernelContext& context, const BatchNormFromRunning& o);
void batch_norm_normalize(KernelContext& context, const BatchNormNormalize& o);
void batch_norm_backward_sums(KernelContext& context, const BatchNormBackwardSums& o);
void batch_norm_backward_parameters(KernelContext& context, const BatchNormBackwardParameters& o);
void batch_norm_backward_data(KernelContext& context, const BatchNormBackwardData& o);

}  // namespace engine::ops::cuda
