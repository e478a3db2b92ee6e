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

template <RegressionLoss kKind, class N>
__device__ __forceinline__ N loss_of_error(N error) {
  const N size = fabs(error);
  if constexpr (kKind == RegressionLoss::kSquared) return error * error;
  if constexpr (kKind == RegressionLoss::kAbsolute) return size;
  return size > 1 ? size - N(0.5) : N(0.5) * error * error;
}

// NaN stays NaN, as on the CPU.
template <RegressionLoss kKind, class N>
__device__ __forceinline__ N slope_at_error(N error) {
  if constexpr (kKind == RegressionLoss::kSquared) return 2 * error;
  constexpr N kLimit = kKind == RegressionLoss::kAbsolute ? 0 : 1;
  return error > kLimit ? N(1) : error < -kLimit ? N(-1) : error;
}

// As on the CPU, neither overflows.
template <class N>
__device__ __forceinline__ N log_of_one_plus_exp(N x) {
  return fmax(x, N(0)) + log1p(exp(-fabs(x)));
}
template <class N>
__device__ __forceinline__ N sigmoid(N x) {
  const N e = exp(-fabs(x));
  return (x >= 0 ? N(1) : e) / (N(1) + e);
}

template <class N>
struct LossAndSlope {
  N loss, slope;
};

template <RegressionLoss kKind, class N>
__device__ __forceinline__ LossAndSlope<N> loss_of(N prediction, N target) {
  if constexpr (kKind == RegressionLoss::kLogistic) {
    if (target != target) return {0, 0};  // NaN: unknown
    if (target == 0) return {log_of_one_plus_exp(prediction), sigmoid(prediction)};
    return {target * log_of_one_plus_exp(-prediction), -target * sigmoid(-prediction)};
  } else {
    const N error = prediction - target;
    return {loss_of_error<kKind>(error), slope_at_error<kKind>(error)};
  }
}

template <class T, RegressionLoss kKind>
__global__ void __launch_bounds__(kThreads)
    loss_of_rows(const T* prediction, const Wide<T>* target, std::int64_t rows,
                 std::int64_t targets, Wide<T>* loss, T* gradient) {
  using N = Wide<T>;
  const N count = kKind == RegressionLoss::kLogistic ? N(1) : static_cast<N>(targets);
  for (std::int64_t r = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; r < rows;
       r += std::int64_t{gridDim.x} * kThreads) {
    N sum = 0;
    for (std::int64_t i = r * targets; i < (r + 1) * targets; ++i) {
      const LossAndSlope<N> of = loss_of<kKind>(to_wide(prediction[i]), target[i]);
      sum += of.loss;
      if (gradient != nullptr) gradient[i] = from_wide<T>(of.slope / count);
    }
    loss[r] = sum / count;
  }
}

}  // namespace

void regression_loss_forward(KernelContext& context, const RegressionLossForward& o) {
  const RowSizes sizes = row_sizes(o.prediction);
  if (sizes.rows == 0) return;
  with_any_storage(o.prediction.dtype, [&]<class T>(T) {
    const auto kernel =
        o.kind == RegressionLoss::kSquared    ? loss_of_rows<T, RegressionLoss::kSquared>
        : o.kind == RegressionLoss::kAbsolute ? loss_of_rows<T, RegressionLoss::kAbsolute>
        : o.kind == RegressionLoss::kHuber    ? loss_of_rows<T, RegressionLoss::kHuber>
                                              : loss_of_rows<T, RegressionLoss::kLogistic>;
    launch("regression_loss_forward", kernel, {loop_blocks(sizes.rows, kThreads)}, kThreads, 0,
           context.stream, o.prediction.as<T>(), o.target.as<Wide<T>>(), sizes.rows, sizes.width,
           o.loss.as<Wide<T>>(), o.gradient.as<T>());
  });
}

}  // namespace engine::ops::cuda
