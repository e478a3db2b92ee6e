// One thread per element of y, which reads its elements of x in their order. Bound by bytes.
#include "engine/ops/general/reduce_max_cuda.h"

#include "engine/ops/device/packs.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;

struct Sizes {
  Axes<2> kept, reduced;
  std::int64_t elements, terms;  // of y, and of x for each
};

struct Places {
  std::int64_t x, y;
};

__device__ __forceinline__ Places places_of(const Axes<2>& axes, std::int64_t i) {
  Places places{0, 0};
  for (int d = axes.count - 1; d >= 0; --d) {
    const auto& axis = axes.at[static_cast<unsigned>(d)];
    const std::int64_t rest = quotient(i, axis.count), index = i - rest * axis.count;
    places.x += index * axis.steps[0];
    places.y += index * axis.steps[1];
    i = rest;
  }
  return places;
}

// Returns the places of the first maximum of element `i` of y, and of that element.
template <class T>
__device__ __forceinline__ Places maximum_of(const T* x, const Sizes& o, std::int64_t i) {
  const Places start = places_of(o.kept, i);
  std::int64_t place = start.x;
  float best = to_float(x[place]);
  for (std::int64_t t = 1; t < o.terms; ++t) {
    const std::int64_t here = start.x + places_of(o.reduced, t).x;
    const float value = to_float(x[here]);
    // A NaN differs from itself.
    const bool above = value > best || (value != value && best == best);
    best = above ? value : best;
    place = above ? here : place;
  }
  return {place, start.y};
}

template <class T>
__global__ void __launch_bounds__(kThreads) maxima(const T* x, Sizes o, T* y) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < o.elements;
       i += std::int64_t{gridDim.x} * kThreads) {
    const Places at = maximum_of(x, o, i);
    y[at.y] = x[at.x];
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) add_at_maxima(const T* x, const T* dy, Sizes o, T* dx) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < o.elements;
       i += std::int64_t{gridDim.x} * kThreads) {
    const Places at = maximum_of(x, o, i);
    dx[at.x] = from_float<T>(to_float(dx[at.x]) + to_float(dy[at.y]));
  }
}

}  // namespace

void reduce_max_forward(KernelContext& context, const ReduceMaxForward& o) {
  const Sizes sizes{o.kept, o.reduced, o.kept.elements(), o.reduced.elements()};
  with_storage(o.x.dtype, [&]<class T>(T) {
    launch("reduce_max_forward", maxima<T>, {loop_blocks(sizes.elements, kThreads)}, kThreads, 0,
           context.stream, o.x.as<T>(), sizes, o.y.as<T>());
  });
}

void add_to_maxima(KernelContext& context, const ReduceMaxBackward& o) {
  const Sizes sizes{o.kept, o.reduced, o.kept.elements(), o.reduced.elements()};
  with_storage(o.x.dtype, [&]<class T>(T) {
    launch("reduce_max_backward", add_at_maxima<T>, {loop_blocks(sizes.elements, kThreads)},
           kThreads, 0, context.stream, o.x.as<T>(), o.dy.as<T>(), sizes, o.dx.as<T>());
  });
}

}  // namespace engine::ops::cuda
