// One thread per element of y. Bound by bytes.
#include "engine/ops/general/broadcast_cuda.h"

#include "engine/ops/device/packs.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/general/axis_places.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;

template <class N>
__device__ __forceinline__ N result_of(BinaryKind kind, N a, N b) {
  switch (kind) {
    case BinaryKind::kAdd:
      return a + b;
    case BinaryKind::kSubtract:
      return a - b;
    case BinaryKind::kMultiply:
      return a * b;
    case BinaryKind::kDivide:
      return a / b;
    case BinaryKind::kGreater:
      return a > b ? 1 : 0;
    case BinaryKind::kGreaterEqual:
      return a >= b ? 1 : 0;
    case BinaryKind::kEqual:
      return a == b ? 1 : 0;
  }
  return 0;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    combine(const T* a, const T* b, Axes<3> axes, std::int64_t count, BinaryKind kind, T* y) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const AxisPlaces<3> places = places_of(axes, i);
    y[i] = from_wide<T>(result_of(kind, to_wide(a[places.at[0]]), to_wide(b[places.at[1]])));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    choose(const T* condition, const T* a, const T* b, Axes<4> axes, std::int64_t count, T* y) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const AxisPlaces<4> places = places_of(axes, i);
    const bool first = to_wide(condition[places.at[0]]) != 0;
    y[i] = first ? a[places.at[1]] : b[places.at[2]];
  }
}

}  // namespace

void broadcast_forward(KernelContext& context, const BroadcastForward& o, const Axes<3>& axes) {
  const std::int64_t count = o.y.count();
  with_any_storage(o.y.dtype, [&]<class T>(T) {
    launch("broadcast_forward", combine<T>, {loop_blocks(count, kThreads)}, kThreads, 0,
           context.stream, o.a.as<T>(), o.b.as<T>(), axes, count, o.kind, o.y.as<T>());
  });
}

void choose_forward(KernelContext& context, const ChooseForward& o, const Axes<4>& axes) {
  const std::int64_t count = o.y.count();
  with_any_storage(o.y.dtype, [&]<class T>(T) {
    launch("choose_forward", choose<T>, {loop_blocks(count, kThreads)}, kThreads, 0, context.stream,
           o.condition.as<T>(), o.a.as<T>(), o.b.as<T>(), axes, count, o.y.as<T>());
  });
}

}  // namespace engine::ops::cuda
