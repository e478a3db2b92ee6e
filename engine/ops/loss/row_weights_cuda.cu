// One thread per row.
#include "engine/ops/loss/row_weights_cuda.h"

#include "engine/ops/device/device_code.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;

template <class N>
__global__ void __launch_bounds__(kThreads)
    weigh_each(const double* weights, std::int64_t rows, N* values) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < rows;
       i += std::int64_t{gridDim.x} * kThreads)
    values[i] *= static_cast<N>(weights[i]);
}

}  // namespace

void weigh_rows(KernelContext& context, TensorView weights, TensorView rows) {
  const std::int64_t count = rows.count();
  if (count == 0) return;
  const auto start = [&]<class N>(N) {
    launch("weigh_rows", weigh_each<N>, {loop_blocks(count, kThreads)}, kThreads, 0, context.stream,
           weights.as<double>(), count, rows.as<N>());
  };
  rows.dtype == DType::kF64 ? start(double{}) : start(float{});
}

}  // namespace engine::ops::cuda
