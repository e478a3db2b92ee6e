// One thread per element of y, which adds its terms in their order: adjacent threads read adjacent
// elements. If the summed axes are the contiguous ones, or y has few elements, a block per element
// of y. Sums are float64. Bound by bytes.
#include "engine/ops/general/strided_sum_cuda.h"

#include "engine/ops/device/packs.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/general/axis_places.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
struct Operands {
  const T *u, *v, *w;
};

using Places = AxisPlaces<4>;

template <class T>
__device__ __forceinline__ Wide<T> term_at(SumTerm term, const Operands<T>& from, const Places& p) {
  const Wide<T> u = to_wide(from.u[p.at[0]]);
  switch (term) {
    case SumTerm::kValue:
      return u;
    case SumTerm::kNegative:
      return -u;
    case SumTerm::kProduct:
      return u * to_wide(from.v[p.at[1]]);
    case SumTerm::kQuotient:
      return u / to_wide(from.v[p.at[1]]);
    case SumTerm::kDivisor: {
      const Wide<T> w = to_wide(from.w[p.at[2]]);
      return -u * to_wide(from.v[p.at[1]]) / (w * w);
    }
    case SumTerm::kChosen:
      return to_wide(from.v[p.at[1]]) != 0 ? u : 0;
    case SumTerm::kOther:
      return to_wide(from.v[p.at[1]]) != 0 ? 0 : u;
  }
  return 0;
}

template <class N>
struct Sizes {
  Axes<4> kept, summed;
  std::int64_t elements, terms;
  N scale;
  bool add;
  SumTerm term;
};

template <class N, class To>
__device__ __forceinline__ void put(const Sizes<N>& o, double sum, To* to) {
  const N value = static_cast<N>(sum * static_cast<double>(o.scale));
  *to = from_wide<To>(o.add ? to_wide(*to) + value : value);
}

template <class T, class To>
__global__ void __launch_bounds__(kThreads)
    sum_per_thread(Operands<T> from, Sizes<Wide<T>> o, To* y) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < o.elements;
       i += std::int64_t{gridDim.x} * kThreads) {
    const Places start = places_of(o.kept, i);
    double sum = 0;
    for (std::int64_t t = 0; t < o.terms; ++t)
      sum += static_cast<double>(term_at(o.term, from, moved(start, o.summed, t)));
    put(o, sum, y + start.at[3]);
  }
}

template <class T, class To>
__global__ void __launch_bounds__(kThreads)
    sum_per_block(Operands<T> from, Sizes<Wide<T>> o, To* y) {
  double* partial = &block_shared<double>();
  for (std::int64_t i = blockIdx.x; i < o.elements; i += gridDim.x) {
    const Places start = places_of(o.kept, i);
    double sum = 0;
    for (std::int64_t t = threadIdx.x; t < o.terms; t += kThreads)
      sum += static_cast<double>(term_at(o.term, from, moved(start, o.summed, t)));
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) put(o, sum, y + start.at[3]);
  }
}

// Whether the threads of a block share the terms of an element.
template <class N>
bool sums_per_block(const Sizes<N>& o) {
  constexpr std::int64_t kFew = 4096;
  if (o.terms < 64) return false;
  return o.elements < kFew || (o.summed.inner().steps[0] == 1 && o.kept.inner().steps[0] != 1);
}

template <class T, class To>
void launch_sum(KernelContext& context, const StridedSum& o) {
  const Sizes<Wide<T>> sizes{o.kept,
                             o.summed,
                             o.kept.elements(),
                             o.summed.elements(),
                             static_cast<Wide<T>>(o.scale),
                             o.write == Write::kAdd,
                             o.term};
  const bool has_v = o.term >= SumTerm::kProduct, has_w = o.term == SumTerm::kDivisor;
  const Operands<T> from{o.u.as<T>(), has_v ? o.v.as<T>() : nullptr, has_w ? o.w.as<T>() : nullptr};
  if (sums_per_block(sizes))
    launch("strided_sum", sum_per_block<T, To>, {loop_blocks(sizes.elements, 1)}, kThreads,
           kThreads / kWarp * sizeof(double), context.stream, from, sizes, o.y.as<To>());
  else
    launch("strided_sum", sum_per_thread<T, To>, {loop_blocks(sizes.elements, kThreads)}, kThreads,
           0, context.stream, from, sizes, o.y.as<To>());
}

}  // namespace

void strided_sum(KernelContext& context, const StridedSum& o) {
  with_any_storage(o.u.dtype, [&]<class T>(T) {
    if (o.y.dtype == o.u.dtype)
      launch_sum<T, T>(context, o);
    else if constexpr (!std::is_same_v<T, double>)
      launch_sum<T, float>(context, o);
  });
}

}  // namespace engine::ops::cuda
