// Group normalization: one block for each group of each sample, which makes three passes over the
// group's elements forward and two backward. Adjacent blocks have adjacent groups, so that other
// groups' parts of a cache line, and the later passes, come from the cache. The variance is
// computed around the mean. Gradients of gamma and beta: sums over slices of all positions, one
// channel per lane, then the sum of the slices, each in one order. Bound by bytes.
#include "engine/ops/device/device_code.h"
#include "engine/ops/device/fast_divide.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/norm/group_norm_cuda.h"
#include "engine/ops/norm/layer_norm_rows.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kSlices = 256, kMinRows = 32;  // for the gradients of gamma and beta

// One group of one sample for each block; N is the number type of sums.
template <class N>
struct Groups {
  std::int64_t n, places;
  int channels, groups, group_channels;
  FastDivide by_group_channels;
  N per_value;  // 1 / number of elements of a group

  explicit Groups(const GroupNormSizes& s)
      : n(s.n),
        places(s.places),
        channels(static_cast<int>(s.channels)),
        groups(static_cast<int>(s.groups)),
        group_channels(static_cast<int>(s.group_channels)),
        by_group_channels(s.group_channels),
        per_value(static_cast<N>(1 / static_cast<double>(s.places * s.group_channels))) {}

  Grid grid() const { return {static_cast<unsigned>(n * groups)}; }
};

// Calls body(element, channel) for this thread's elements of the block's group.
template <class N, class Body>
__device__ __forceinline__ void for_each_in_group(const Groups<N>& s, Body body) {
  const std::int64_t sample = blockIdx.x / static_cast<unsigned>(s.groups);
  const int first =
      static_cast<int>(blockIdx.x % static_cast<unsigned>(s.groups)) * s.group_channels;
  const std::int64_t start = sample * s.places * s.channels;
  const int count = static_cast<int>(s.places) * s.group_channels;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const int place = s.by_group_channels.quotient(i);
    const int channel = first + i - place * s.group_channels;
    body(start + std::int64_t{place} * s.channels + channel, channel);
  }
}

template <class T>
struct Forward {
  const T* x;
  const Wide<T>*gamma, *beta;
  Wide<T> eps;
  T* y;
  Wide<T>* statistics;  // or nullptr
};

template <class T>
__global__ void __launch_bounds__(kThreads) forward(Forward<T> o, Groups<Wide<T>> s) {
  using N = Wide<T>;
  N* partial = block_shared<N[kWarps]>();
  N sum = 0, squares = 0;
  for_each_in_group(s, [&](std::int64_t at, int) { sum += to_wide(o.x[at]); });
  const N mean = block_sum(sum, partial) * s.per_value;
  for_each_in_group(s, [&](std::int64_t at, int) {
    const N d = to_wide(o.x[at]) - mean;
    squares += d * d;
  });
  const N inverse = inverse_root(block_sum(squares, partial) * s.per_value + o.eps);
  for_each_in_group(s, [&](std::int64_t at, int c) {
    o.y[at] = from_wide<T>((to_wide(o.x[at]) - mean) * inverse * o.gamma[c] + o.beta[c]);
  });
  if (o.statistics == nullptr || threadIdx.x != 0) return;
  o.statistics[blockIdx.x] = mean;
  o.statistics[s.n * s.groups + blockIdx.x] = inverse;
}

template <class T>
struct Backward {
  const T *x, *dy;
  const Wide<T>*gamma, *statistics;
  bool add;
  T* dx;
};

template <class T>
__global__ void __launch_bounds__(kThreads) backward_data(Backward<T> o, Groups<Wide<T>> s) {
  using N = Wide<T>;
  N* partial = block_shared<N[kWarps]>();
  const N mean = o.statistics[blockIdx.x], inverse = o.statistics[s.n * s.groups + blockIdx.x];
  N sum = 0, products = 0;
  for_each_in_group(s, [&](std::int64_t at, int c) {
    const N g = to_wide(o.dy[at]) * o.gamma[c];
    sum += g;
    products += g * (to_wide(o.x[at]) - mean) * inverse;
  });
  sum = block_sum(sum, partial) * s.per_value;
  products = block_sum(products, partial) * s.per_value;
  for_each_in_group(s, [&](std::int64_t at, int c) {
    const N xhat = (to_wide(o.x[at]) - mean) * inverse;
    const N value = inverse * (to_wide(o.dy[at]) * o.gamma[c] - sum - xhat * products);
    o.dx[at] = from_wide<T>(o.add ? to_wide(o.dx[at]) + value : value);
  });
}

template <class N>
struct SliceSums {
  N products[kWarps][kWarp], sums[kWarps][kWarp];
};

// Each block sums 32 channels over one slice of all rows (positions of all samples); its warps
// process the rows round-robin. parts [slices, 2, channels].
template <class T>
__global__ void __launch_bounds__(kThreads)
    sums_of_slices(Backward<T> o, Groups<Wide<T>> s, std::int64_t slice_rows, Wide<T>* parts) {
  auto& shared = block_shared<SliceSums<Wide<T>>>();
  const int c = static_cast<int>(blockIdx.x) * kWarp + lane_index(), w = warp_index();
  const std::int64_t first = blockIdx.y * slice_rows, rows = s.n * s.places,
                     last = first + slice_rows < rows ? first + slice_rows : rows;
  Wide<T> sum = 0, products = 0;
  if (c < s.channels) {
    const int group = s.by_group_channels.quotient(c);
    for (std::int64_t r = first + w; r < last; r += kWarps) {
      const std::int64_t i = r / s.places * s.groups + group;
      const Wide<T> slope = to_wide(o.dy[r * s.channels + c]);
      sum += slope;
      products += slope * (to_wide(o.x[r * s.channels + c]) - o.statistics[i]) *
                  o.statistics[s.n * s.groups + i];
    }
  }
  shared.products[w][lane_index()] = products;
  shared.sums[w][lane_index()] = sum;
  __syncthreads();
  if (w > 0 || c >= s.channels) return;
  for (int other = 1; other < kWarps; ++other) {
    products += shared.products[other][lane_index()];
    sum += shared.sums[other][lane_index()];
  }
  parts[std::int64_t{2} * blockIdx.y * s.channels + c] = products;
  parts[std::int64_t{2} * blockIdx.y * s.channels + s.channels + c] = sum;
}

// Element i of [dgamma, dbeta] is the sum of element i of all slices.
template <class N>
__global__ void __launch_bounds__(kThreads)
    sum_of_slices(const N* parts, int slices, int channels, bool add, N* dgamma, N* dbeta) {
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i >= 2 * channels) return;
  N sum = 0;
  for (int k = 0; k < slices; ++k) sum += parts[std::int64_t{2} * k * channels + i];
  N& to = i < channels ? dgamma[i] : dbeta[i - channels];
  to = add ? to + sum : sum;
}

template <class T>
void backward_parameters(KernelContext& context, const GroupNormBackward& o,
                         const Groups<Wide<T>>& groups) {
  using N = Wide<T>;
  const std::int64_t rows = groups.n * groups.places,
                     wanted = divide_up(rows, layer_norm_rows::slices_of<N>(kSlices));
  const std::int64_t slice_rows = wanted < kMinRows ? kMinRows : wanted,
                     slices = divide_up(rows, slice_rows);
  auto* parts = reinterpret_cast<N*>(context.scratch.data());
  const unsigned blocks = static_cast<unsigned>(divide_up(groups.channels, kWarp));
  if (rows > 0) {
    const Backward<T> operands{o.x.as<T>(),          o.dy.as<T>(), o.gamma.as<N>(),
                               o.statistics.as<N>(), false,        nullptr};
    launch("group_norm_sums", sums_of_slices<T>, {blocks, static_cast<unsigned>(slices)}, kThreads,
           sizeof(SliceSums<N>), context.stream, operands, groups, slice_rows, parts);
  }
  launch("group_norm_sum", sum_of_slices<N>,
         {static_cast<unsigned>(divide_up(std::int64_t{2} * groups.channels, kThreads))}, kThreads,
         0, context.stream, parts, static_cast<int>(slices), groups.channels,
         o.parameter_write == Write::kAdd, o.dgamma.as<N>(), o.dbeta.as<N>());
}

}  // namespace

std::size_t group_norm_scratch_bytes(std::int64_t channels) {
  return kSlices * 2 * static_cast<std::size_t>(channels) * sizeof(float);
}

void group_norm_forward(KernelContext& context, const GroupNormForward& o) {
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    using N = Wide<T>;
    const Groups<N> groups(group_norm_sizes(o.x, o.groups));
    const Forward<T> operands{o.x.as<T>(),           o.gamma.as<N>(), o.beta.as<N>(),
                              static_cast<N>(o.eps), o.y.as<T>(),     o.statistics.as<N>()};
    launch("group_norm_forward", forward<T>, groups.grid(), kThreads, kWarps * sizeof(N),
           context.stream, operands, groups);
  });
}

// The parameters' gradients are computed first, because dx may be dy.
void group_norm_backward(KernelContext& context, const GroupNormBackward& o) {
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    using N = Wide<T>;
    const Groups<N> groups(group_norm_sizes(o.x, o.statistics.shape[2]));
    backward_parameters<T>(context, o, groups);
    if (!o.dx || o.x.count() == 0) return;
    const Backward<T> operands{
        o.x.as<T>(), o.dy.as<T>(), o.gamma.as<N>(), o.statistics.as<N>(), o.dx_write == Write::kAdd,
        o.dx.as<T>()};
    launch("group_norm_backward_data", backward_data<T>, groups.grid(), kThreads,
           kWarps * sizeof(N), context.stream, operands, groups);
  });
}

}  // namespace engine::ops::cuda
