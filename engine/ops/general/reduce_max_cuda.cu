// One thread per element of y, which reads its elements of x in their order. Bound by bytes.
#include "engine/ops/general/reduce_max_cuda.h"

#include "engine/ops/device/packs.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/general/axis_places.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;

struct Sizes {
  Axes<2> kept, reduced;
  std::int64_t elements, terms;  // of y, and of x for each
};

using Places = AxisPlaces<2>;  // in x and in y

// Returns the places of the first maximum of element `i` of y, and of that element.
template <class T>
__device__ __forceinline__ Places maximum_of(const T* x, const Sizes& o, std::int64_t i) {
  const Places start = places_of(o.kept, i);
  std::int64_t place = start.at[0];
  Wide<T> best = to_wide(x[place]);
  for (std::int64_t t = 1; t < o.terms; ++t) {
    const std::int64_t here = start.at[0] + places_of(o.reduced, t).at[0];
    const Wide<T> value = to_wide(x[here]);
    // A NaN differs from itself.
    const bool above = value > best || (value != value && best == best);
    best = above ? value : best;
    place = above ? here : place;
  }
  return {{place, start.at[1]}};
}

template <class T>
__global__ void __launch_bounds__(kThreads) maxima(const T* x, Sizes o, T* y) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < o.elements;
       i += std::int64_t{gridDim.x} * kThreads) {
    const Places at = maximum_of(x, o, i);
    y[at.at[1]] = x[at.at[0]];
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) add_at_maxima(const T* x, const T* dy, Sizes o, T* dx) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < o.elements;
       i += std::int64_t{gridDim.x} * kThreads) {
    const Places at = maximum_of(x, o, i);
    dx[at.at[0]] = from_wide<T>(to_wide(dx[at.at[0]]) + to_wide(dy[at.at[1]]));
  }
}

}  // namespace

void reduce_max_forward(KernelContext& context, const ReduceMaxForward& o) {
  const Sizes sizes{o.kept, o.reduced, o.kept.elements(), o.reduced.elements()};
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    launch("reduce_max_forward", maxima<T>, {loop_blocks(sizes.elements, kThreads)}, kThreads, 0,
           context.stream, o.x.as<T>(), sizes, o.y.as<T>());
  });
}

void add_to_maxima(KernelContext& context, const ReduceMaxBackward& o) {
  const Sizes sizes{o.kept, o.reduced, o.kept.elements(), o.reduced.elements()};
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    launch("reduce_max_backward", add_at_maxima<T>, {loop_blocks(sizes.elements, kThreads)},
           kThreads, 0, context.stream, o.x.as<T>(), o.dy.as<T>(), sizes, o.dx.as<T>());
  });
}

}  // namespace engine::ops::cuda
