// One thread per row: a row has one or a few numbers, so adjacent threads read adjacent memory, and
// each row is summed in the order of its targets. Rows of many targets are read with gaps, mostly
// from caches.
#include "engine/ops/loss/regression_loss_cuda.h"

#include "engine/ops/common/rows.h"
#include "engine/ops/device/device_code.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;

template <RegressionLoss kKind>
__device__ __forceinline__ float loss_of_error(float error) {
  const float size = fabsf(error);
  if constexpr (kKind == RegressionLoss::kSquared) return error * error;
  if constexpr (kKind == RegressionLoss::kAbsolute) return size;
  return size > 1 ? size - 0.5f : 0.5f * error * error;
}

// NaN stays NaN, as on the CPU.
template <RegressionLoss kKind>
__device__ __forceinline__ float slope_at_error(float error) {
  if constexpr (kKind == RegressionLoss::kSquared) return 2 * error;
  constexpr float kLimit = kKind == RegressionLoss::kAbsolute ? 0 : 1;
  return error > kLimit ? 1.0f : error < -kLimit ? -1.0f : error;
}

// As on the CPU, neither overflows.
__device__ __forceinline__ float log_of_one_plus_exp(float x) {
  return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
}
__device__ __forceinline__ float sigmoid(float x) {
  const float e = expf(-fabsf(x));
  return (x >= 0 ? 1.0f : e) / (1.0f + e);
}

struct LossAndSlope {
  float loss, slope;
};

template <RegressionLoss kKind>
__device__ __forceinline__ LossAndSlope loss_of(float prediction, float target) {
  if constexpr (kKind == RegressionLoss::kLogistic) {
    if (target != target) return {0, 0};  // NaN: unknown
    if (target == 0) return {log_of_one_plus_exp(prediction), sigmoid(prediction)};
    return {target * log_of_one_plus_exp(-prediction), -target * sigmoid(-prediction)};
  } else {
    const float error = prediction - target;
    return {loss_of_error<kKind>(error), slope_at_error<kKind>(error)};
  }
}

template <class T, RegressionLoss kKind>
__global__ void __launch_bounds__(kThreads)
    loss_of_rows(const T* prediction, const float* target, std::int64_t rows, std::int64_t targets,
                 float* loss, T* gradient) {
  const float count = kKind == RegressionLoss::kLogistic ? 1.0f : static_cast<float>(targets);
  for (std::int64_t r = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; r < rows;
       r += std::int64_t{gridDim.x} * kThreads) {
    float sum = 0;
    for (std::int64_t i = r * targets; i < (r + 1) * targets; ++i) {
      const LossAndSlope of = loss_of<kKind>(to_float(prediction[i]), target[i]);
      sum += of.loss;
      if (gradient != nullptr) gradient[i] = from_float<T>(of.slope / count);
    }
    loss[r] = sum / count;
  }
}

}  // namespace

void regression_loss_forward(KernelContext& context, const RegressionLossForward& o) {
  const RowSizes sizes = row_sizes(o.prediction);
  if (sizes.rows == 0) return;
  with_storage(o.prediction.dtype, [&]<class T>(T) {
    const auto kernel =
        o.kind == RegressionLoss::kSquared    ? loss_of_rows<T, RegressionLoss::kSquared>
        : o.kind == RegressionLoss::kAbsolute ? loss_of_rows<T, RegressionLoss::kAbsolute>
        : o.kind == RegressionLoss::kHuber    ? loss_of_rows<T, RegressionLoss::kHuber>
                                              : loss_of_rows<T, RegressionLoss::kLogistic>;
    launch("regression_loss_forward", kernel, {loop_blocks(sizes.rows, kThreads)}, kThreads, 0,
           context.stream, o.prediction.as<T>(), o.target.as<float>(), sizes.rows, sizes.width,
           o.loss.as<float>(), o.gradient.as<T>());
  });
}

}  // namespace engine::ops::cuda
