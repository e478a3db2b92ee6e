// Batch normalization on a CUDA device; operands as in batch_norm.h, checked there: x and what has
// its shape in the storage of activations, [channels] in f32, sums in f64.
#pragma once

#include "engine/ops/norm/batch_norm.h"

namespace engine::ops::cuda {

// Grows with the rows.
std::size_t batch_norm_scratch_bytes(std::int64_t rows, std::int64_t channels, DType dtype);

void batch_norm_statistics(KernelContext& context, const TensorView& x, const TensorView& sums);
void batch_norm_finish_statistics(KernelContext& context, const BatchNormFinishStatistics& o);
void batch_norm_from_running(KernelContext& context, const BatchNormFromRunning& o);
void batch_norm_normalize(KernelContext& context, const BatchNormNormalize& o);
void batch_norm_backward_sums(KernelContext& context, const BatchNormBackwardSums& o);
void batch_norm_backward_parameters(KernelContext& context, const BatchNormBackwardParameters& o);
void batch_norm_backward_data(KernelContext& context, const BatchNormBackwardData& o);

}  // namespace engine::ops::cuda
