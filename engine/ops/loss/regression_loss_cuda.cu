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

template <class T, bool kSquared>
__global__ void __launch_bounds__(kThreads)
    loss_of_rows(const T* prediction, const float* target, std::int64_t rows, std::int64_t targets,
                 float* loss, T* gradient) {
  const float count = static_cast<float>(targets);
  for (std::int64_t r = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; r < rows;
       r += std::int64_t{gridDim.x} * kThreads) {
    float sum = 0;
    for (std::int64_t i = r * targets; i < (r + 1) * targets; ++i) {
      const float error = to_float(prediction[i]) - target[i];
      sum += kSquared ? error * error : fabsf(error);
      if (gradient == nullptr) continue;
      // The sign of NaN is NaN, as on the CPU.
      const float sign = error > 0 ? 1.0f : error < 0 ? -1.0f : error;
      gradient[i] = from_float<T>((kSquared ? 2 * error : sign) / count);
    }
    loss[r] = sum / count;
  }
}

}  // namespace

void regression_loss_forward(KernelContext& context, TensorView prediction, TensorView target,
                             bool squared, TensorView loss, TensorView gradient) {
  const RowSizes sizes = row_sizes(prediction);
  if (sizes.rows == 0) return;
  with_storage(prediction.dtype, [&]<class T>(T) {
    launch("regression_loss_forward", squared ? loss_of_rows<T, true> : loss_of_rows<T, false>,
           {loop_blocks(sizes.rows, kThreads)}, kThreads, 0, context.stream, prediction.as<T>(),
           target.as<float>(), sizes.rows, sizes.width, loss.as<float>(), gradient.as<T>());
  });
}

}  // namespace engine::ops::cuda
