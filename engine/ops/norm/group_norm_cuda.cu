// Group normalization: one block for each group of each sample, which makes three passes over the
// group's elements forward and two backward. Adjacent blocks have adjacent groups, so that other
// groups' parts of a cache line, and the later passes, come from the cache. The variance is
// computed around the mean. Gradients of gamma and beta: sums over slices of all positions, one
// channel per lane, then the sum of the slices, each in one order. Bound by bytes.
#include "engine/ops/device/device_code.h"
#include "engine/ops/device/fast_divide.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/norm/group_norm_cuda.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kSlices = 256, kMinRows = 32;  // for the gradients of gamma and beta

// One group of one sample for each block.
struct Groups {
  std::int64_t n, places;
  int channels, groups, group_channels;
  FastDivide by_group_channels;
  float per_value;  // 1 / number of elements of a group

  explicit Groups(const GroupNormSizes& s)
      : n(s.n),
        places(s.places),
        channels(static_cast<int>(s.channels)),
        groups(static_cast<int>(s.groups)),
        group_channels(static_cast<int>(s.group_channels)),
        by_group_channels(s.group_channels),
        per_value(static_cast<float>(1 / static_cast<double>(s.places * s.group_channels))) {}

  Grid grid() const { return {static_cast<unsigned>(n * groups)}; }
};

// Calls body(element, channel) for this thread's elements of the block's group.
template <class Body>
__device__ __forceinline__ void for_each_in_group(const Groups& s, Body body) {
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
  const float *gamma, *beta;
  float eps;
  T* y;
  float* statistics;  // or nullptr
};

template <class T>
__global__ void __launch_bounds__(kThreads) forward(Forward<T> o, Groups s) {
  float* partial = block_shared<float[kWarps]>();
  float sum = 0, squares = 0;
  for_each_in_group(s, [&](std::int64_t at, int) { sum += to_float(o.x[at]); });
  const float mean = block_sum(sum, partial) * s.per_value;
  for_each_in_group(s, [&](std::int64_t at, int) {
    const float d = to_float(o.x[at]) - mean;
    squares += d * d;
  });
  const float inverse = rsqrtf(block_sum(squares, partial) * s.per_value + o.eps);
  for_each_in_group(s, [&](std::int64_t at, int c) {
    o.y[at] = from_float<T>((to_float(o.x[at]) - mean) * inverse * o.gamma[c] + o.beta[c]);
  });
  if (o.statistics == nullptr || threadIdx.x != 0) return;
  o.statistics[blockIdx.x] = mean;
  o.statistics[s.n * s.groups + blockIdx.x] = inverse;
}

template <class T>
struct Backward {
  const T *x, *dy;
  const float *gamma, *statistics;
  bool add;
  T* dx;
};

template <class T>
__global__ void __launch_bounds__(kThreads) backward_data(Backward<T> o, Groups s) {
  float* partial = block_shared<float[kWarps]>();
  const float mean = o.statistics[blockIdx.x], inverse = o.statistics[s.n * s.groups + blockIdx.x];
  float sum = 0, products = 0;
  for_each_in_group(s, [&](std::int64_t at, int c) {
    const float g = to_float(o.dy[at]) * o.gamma[c];
    sum += g;
    products += g * (to_float(o.x[at]) - mean) * inverse;
  });
  sum = block_sum(sum, partial) * s.per_value;
  products = block_sum(products, partial) * s.per_value;
  for_each_in_group(s, [&](std::int64_t at, int c) {
    const float xhat = (to_float(o.x[at]) - mean) * inverse;
    const float value = inverse * (to_float(o.dy[at]) * o.gamma[c] - sum - xhat * products);
    o.dx[at] = from_float<T>(o.add ? to_float(o.dx[at]) + value : value);
  });
}

struct SliceSums {
  float products[kWarps][kWarp], sums[kWarps][kWarp];
};

// Each block sums 32 channels over one slice of all rows (positions of all samples); its warps
// process the rows round-robin. parts [slices, 2, channels].
template <class T>
__global__ void __launch_bounds__(kThreads)
    sums_of_slices(Backward<T> o, Groups s, std::int64_t slice_rows, float* parts) {
  SliceSums& shared = block_shared<SliceSums>();
  const int c = static_cast<int>(blockIdx.x) * kWarp + lane_index(), w = warp_index();
  const std::int64_t first = blockIdx.y * slice_rows, rows = s.n * s.places,
                     last = first + slice_rows < rows ? first + slice_rows : rows;
  float sum = 0, products = 0;
  if (c < s.channels) {
    const int group = s.by_group_channels.quotient(c);
    for (std::int64_t r = first + w; r < last; r += kWarps) {
      const std::int64_t i = r / s.places * s.groups + group;
      const float slope = to_float(o.dy[r * s.channels + c]);
      sum += slope;
      products += slope * (to_float(o.x[r * s.channels + c]) - o.statistics[i]) *
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
__global__ void __launch_bounds__(kThreads)
    sum_of_slices(const float* parts, int slices, int channels, bool add, float* dgamma,
                  float* dbeta) {
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i >= 2 * channels) return;
  float sum = 0;
  for (int k = 0; k < slices; ++k) sum += parts[std::int64_t{2} * k * channels + i];
  float& to = i < channels ? dgamma[i] : dbeta[i - channels];
  to = add ? to + sum : sum;
}

void backward_parameters(KernelContext& context, const GroupNormBackward& o, const Groups& groups) {
  const std::int64_t rows = groups.n * groups.places, wanted = divide_up(rows, kSlices);
  const std::int64_t slice_rows = wanted < kMinRows ? kMinRows : wanted,
                     slices = divide_up(rows, slice_rows);
  auto* parts = reinterpret_cast<float*>(context.scratch.data());
  const unsigned blocks = static_cast<unsigned>(divide_up(groups.channels, kWarp));
  if (rows > 0)
    with_storage(o.x.dtype, [&]<class T>(T) {
      const Backward<T> operands{
          o.x.as<T>(), o.dy.as<T>(), o.gamma.as<float>(), o.statistics.as<float>(), false, nullptr};
      launch("group_norm_sums", sums_of_slices<T>, {blocks, static_cast<unsigned>(slices)},
             kThreads, sizeof(SliceSums), context.stream, operands, groups, slice_rows, parts);
    });
  launch("group_norm_sum", sum_of_slices,
         {static_cast<unsigned>(divide_up(std::int64_t{2} * groups.channels, kThreads))}, kThreads,
         0, context.stream, parts, static_cast<int>(slices), groups.channels,
         o.parameter_write == Write::kAdd, o.dgamma.as<float>(), o.dbeta.as<float>());
}

}  // namespace

std::size_t group_norm_scratch_bytes(std::int64_t channels) {
  return kSlices * 2 * static_cast<std::size_t>(channels) * sizeof(float);
}

void group_norm_forward(KernelContext& context, const GroupNormForward& o) {
  const Groups groups(group_norm_sizes(o.x, o.groups));
  with_storage(o.x.dtype, [&]<class T>(T) {
    const Forward<T> operands{o.x.as<T>(),        o.gamma.as<float>(),
                              o.beta.as<float>(), static_cast<float>(o.eps),
                              o.y.as<T>(),        o.statistics.as<float>()};
    launch("group_norm_forward", forward<T>, groups.grid(), kThreads, kWarps * sizeof(float),
           context.stream, operands, groups);
  });
}

// The parameters' gradients are computed first, because dx may be dy.
void group_norm_backward(KernelContext& context, const GroupNormBackward& o) {
  const Groups groups(group_norm_sizes(o.x, o.statistics.shape[2]));
  backward_parameters(context, o, groups);
  if (!o.dx || o.x.count() == 0) return;
  with_storage(o.x.dtype, [&]<class T>(T) {
    const Backward<T> operands{o.x.as<T>(),
                               o.dy.as<T>(),
                               o.gamma.as<float>(),
                               o.statistics.as<float>(),
                               o.dx_write == Write::kAdd,
                               o.dx.as<T>()};
    launch("group_norm_backward_data", backward_data<T>, groups.grid(), kThreads,
           kWarps * sizeof(float), context.stream, operands, groups);
  });
}

}  // namespace engine::ops::cuda
