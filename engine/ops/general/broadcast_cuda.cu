// One thread per element of y. Bound by bytes.
#include "engine/ops/general/broadcast_cuda.h"

#include "engine/ops/device/packs.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float result_of(BinaryKind kind, float a, float b) {
  switch (kind) {
    case BinaryKind::kAdd:
      return a + b;
    case BinaryKind::kSubtract:
      return a - b;
    case BinaryKind::kMultiply:
      return a * b;
    case BinaryKind::kDivide:
      return a / b;
  }
  return 0;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    combine(const T* a, const T* b, Axes<3> axes, std::int64_t count, BinaryKind kind, T* y) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    std::int64_t at_a = 0, at_b = 0, rest = i;
    for (int d = axes.count - 1; d >= 0; --d) {
      const auto& axis = axes.at[static_cast<unsigned>(d)];
      const std::int64_t outer = quotient(rest, axis.count), index = rest - outer * axis.count;
      at_a += index * axis.steps[0];
      at_b += index * axis.steps[1];
      rest = outer;
    }
    y[i] = from_float<T>(result_of(kind, to_float(a[at_a]), to_float(b[at_b])));
  }
}

}  // namespace

void broadcast_forward(KernelContext& context, const BroadcastForward& o, const Axes<3>& axes) {
  const std::int64_t count = o.y.count();
  with_storage(o.y.dtype, [&]<class T>(T) {
    launch("broadcast_forward", combine<T>, {loop_blocks(count, kThreads)}, kThreads, 0,
           context.stream, o.a.as<T>(), o.b.as<T>(), axes, count, o.kind, o.y.as<T>());
  });
}

}  // namespace engine::ops::cuda
