// One block checks all ids (a batch has some ten thousand), so that it finds the lowest bad index
// without atomics and with the same result in every run. Bound by the launch itself.
#include "engine/ops/device/range_check_cuda.h"

#include "engine/ops/device/device_code.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 512;

__global__ void __launch_bounds__(kThreads)
    find_first_outside(const std::int32_t* ids, std::int64_t count, std::int64_t limit,
                       std::int32_t also, DeviceFault* fault) {
  struct Shared {
    std::int64_t first[kThreads / kWarp];
  };
  Shared& shared = block_shared<Shared>();
  std::int64_t first = count;
  for (std::int64_t i = threadIdx.x; i < count && first == count; i += kThreads) {
    const std::int32_t id = ids[i];
    if ((id < 0 || id >= limit) && id != also) first = i;
  }
  first = -warp_max(-first);
  if (lane_index() == 0) shared.first[warp_index()] = first;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 0; w < kThreads / kWarp; ++w)
    first = shared.first[w] < first ? shared.first[w] : first;
  if (first == count || fault->found != 0) return;
  fault->found = 1;
  fault->value = ids[first];
  fault->at = first;
  fault->limit = limit;
}

}  // namespace

void check_range(KernelContext& context, const std::int32_t* ids, std::int64_t count,
                 std::int64_t limit, std::int32_t also) {
  if (count == 0 || context.fault == nullptr) return;
  launch("check_range", find_first_outside, {1}, kThreads, kThreads / kWarp * sizeof(std::int64_t),
         context.stream, ids, count, limit, also, context.fault);
}

}  // namespace engine::ops::cuda
