// One thread per element. Bound by bytes.
#include "engine/ops/windows/pixel_vectors_cuda.h"

#include "engine/ops/device/packs.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    fill(const Wide<T>* vector, std::int64_t width, std::int64_t count, T* y) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads)
    y[i] = from_wide<T>(vector[i - quotient(i, width) * width]);
}

}  // namespace

void fill_pixels(KernelContext& context, const TensorView& vector, const TensorView& y) {
  with_any_storage(y.dtype, [&]<class T>(T) {
    launch("fill_pixels", fill<T>, {loop_blocks(y.count(), kThreads)}, kThreads, 0, context.stream,
           vector.as<Wide<T>>(), vector.count(), y.count(), y.as<T>());
  });
}

}  // namespace engine::ops::cuda
