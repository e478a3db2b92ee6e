// One warp per row if the row fits into its registers (up to 1024 classes: the logits are read
// once), otherwise one block per row, 16 bytes at a time for any alignment of the row. One pass
// computes the loss and the rank of the label, and, for the gradient, one more goes over a row that
// is still in the cache. Totals of a batch come from the per-row results, not from the logits.
// Exponentials are relative to finite numbers or to +inf, so that rows with infinite logits give
// the results of the reference. Bound by bytes.
#include "engine/ops/loss/softmax_cross_entropy_cuda.h"

#include "engine/ops/device/block_max.h"
#include "engine/ops/device/device_code.h"
#include "engine/ops/device/float_access.h"
#include "engine/ops/device/packs.h"
#include "engine/ops/device/range_check_cuda.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
// Threads per long row: so many that the rows that a device reads at a time stay in its L2 until
// they are read again for the gradient.
constexpr int kLongRowThreads = 512;
constexpr int kTotalsThreads = 1024;
constexpr std::size_t kLongRow = 40 * 1024;
// A NaN adds this to a rank: more than any rank that matters.
constexpr int kBehindAll = 8;
template <class N>
inline constexpr N kLowest = sizeof(N) > 4 ? N(-1.7976931348623157e308) : N(-3.402823466e38f);

__device__ __forceinline__ int safe_label(std::int32_t label, int classes) {
  return label >= 0 && label < classes ? label : 0;
}

template <class N>
struct Target {
  N smoothing, share;  // share: of every class
};

// `sum` is the sum of exp(logit - largest), `all` that of logit - largest over the row; `own` is
// logit - largest at the label.
template <class N>
__device__ __forceinline__ N row_loss(N sum, N all, N own, int classes, Target<N> target) {
  const N log_sum = log(sum), loss = log_sum - own;
  if (target.smoothing == 0) return loss;
  return (1 - target.smoothing) * loss + target.share * (static_cast<N>(classes) * log_sum - all);
}

// Returns 1 if class c ranks before the label's class: of equal logits the lower class ranks first.
// kBehindAll for NaN.
template <class N>
__device__ __forceinline__ int rank_part(N value, int c, N own, int label) {
  return value != value ? kBehindAll : value > own || (value == own && c < label) ? 1 : 0;
}

template <class N>
__device__ __forceinline__ N target_at(int c, int label, Target<N> target) {
  return (c == label ? 1 - target.smoothing : N(0)) + target.share;
}

template <class T>
struct ForwardOperands {
  const T* logits;
  const std::int32_t* labels;
  std::int64_t rows;
  int classes;
  Target<Wide<T>> target;
  Wide<T>* loss;
  T* gradient;          // may be null
  std::int32_t* ranks;  // likewise
};

template <class T, int kEach>
__global__ void __launch_bounds__(kThreads) forward_by_warps(ForwardOperands<T> o) {
  const int classes = o.classes;
  const std::int64_t r = std::int64_t{blockIdx.x} * kWarps + warp_index();
  if (r >= o.rows) return;
  const T* row = o.logits + r * classes;
  const int lane = lane_index(), label = safe_label(o.labels[r], classes);
  const bool counts = o.labels[r] != kNoLabel;
  const float label_logit = to_float(row[label]);
  float value[kEach], largest = kLowest<float>;
  int rank = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int c = i * kWarp + lane;
    value[i] = c < classes ? to_float(row[c]) : kLowest<float>;
    largest = value[i] > largest ? value[i] : largest;
    if (c < classes) rank += rank_part(value[i], c, label_logit, label);
  }
  largest = warp_max(largest);
  rank = warp_sum(rank);
  float sum = 0, all = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int c = i * kWarp + lane;
    if (c >= classes) continue;
    const float above = value[i] - largest;
    all += above;
    value[i] = expf(above);
    sum += value[i];
  }
  sum = warp_sum(sum);
  all = warp_sum(all);
  if (lane == 0) {
    o.loss[r] = counts ? row_loss(sum, all, label_logit - largest, classes, o.target) : 0;
    if (o.ranks != nullptr) o.ranks[r] = counts ? rank : kNoRank;
  }
  if (o.gradient == nullptr) return;
  const float inverse = 1 / sum;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int c = i * kWarp + lane;
    if (c < classes)
      o.gradient[r * classes + c] =
          from_float<T>(counts ? value[i] * inverse - target_at(c, label, o.target) : 0);
  }
}

template <int kCount>
using Count = std::integral_constant<int, kCount>;

// Calls part(c, n) for a thread's part of a row of `classes`: c is the first of n adjacent
// elements. Runs of kVector elements start at multiples of 16 bytes; the elements before the first
// and after the last run, fewer than kVector each, are passed one by one. Any other memory that
// part() accesses at these offsets is aligned like `row`.
template <int kVector, int kRowThreads, class T, class Part>
__device__ __forceinline__ void for_runs(const T* row, int classes, int thread, Part part) {
  if constexpr (kVector == 1) {
#pragma unroll 2
    for (int c = thread; c < classes; c += kRowThreads) part(c, Count<1>{});
  } else {
    const auto beyond = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(row) % 16);
    const int before = static_cast<int>((16 - beyond) % 16 / sizeof(T)),
              head = before < classes ? before : classes,
              runs_end = head + (classes - head) / kVector * kVector;
    if (thread < head) part(thread, Count<1>{});
#pragma unroll 2
    for (int c = head + thread * kVector; c < runs_end; c += kRowThreads * kVector)
      part(c, Count<kVector>{});
    if (runs_end + thread < classes) part(runs_end + thread, Count<1>{});
  }
}

template <class N>
struct BlockParts {
  N numbers[kLongRowThreads / kWarp];
  int ints[kLongRowThreads / kWarp];
};

// One pass for the largest logit and the sum of exponentials relative to the largest so far
// (Milakov and Gimelshein, 2018).
template <class T, int kVector, int kRowThreads>
__global__ void __launch_bounds__(kRowThreads) forward_by_blocks(ForwardOperands<T> o) {
  using N = Wide<T>;
  BlockParts<N>& parts = block_shared<BlockParts<N>>();
  const int classes = o.classes;
  const std::int64_t r = blockIdx.x;
  const T* row = o.logits + r * classes;
  const int thread = static_cast<int>(threadIdx.x), label = safe_label(o.labels[r], classes);
  const bool counts = o.labels[r] != kNoLabel;
  const N own = to_wide(row[label]);
  N largest = kLowest<N>, sum = 0, all = 0;
  int rank = 0;
  for_runs<kVector, kRowThreads>(row, classes, thread, [&]<int kCount>(int c, Count<kCount>) {
    N value[kCount], top = largest;
    load_floats<kCount>(row + c, value);
#pragma unroll
    for (int i = 0; i < kCount; ++i) top = value[i] > top ? value[i] : top;
    sum *= exp(largest - top);
    largest = top;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      sum += exp(value[i] - largest);
      all += value[i];
      rank += rank_part(value[i], c + i, own, label);
    }
  });
  const N top = block_max(largest, parts.numbers);
  sum = block_sum(sum * exp(largest - top), parts.numbers);
  all = block_sum(all, parts.numbers) - static_cast<N>(classes) * top;
  rank = block_sum(rank, parts.ints);
  if (thread == 0) {
    o.loss[r] = counts ? row_loss(sum, all, own - top, classes, o.target) : 0;
    if (o.ranks != nullptr) o.ranks[r] = counts ? rank : kNoRank;
  }
  if (o.gradient == nullptr) return;
  const N inverse = 1 / sum;
  T* to = o.gradient + r * classes;
  for_runs<kVector, kRowThreads>(row, classes, thread, [&]<int kCount>(int c, Count<kCount>) {
    N value[kCount];
    load_floats<kCount>(row + c, value);
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      value[i] = counts ? exp(value[i] - top) * inverse - target_at(c + i, label, o.target) : 0;
    store_floats<kCount>(to + c, value);
  });
}

// kRowThreads threads per row.
template <class T, int kRowThreads, int kVector>
__global__ void __launch_bounds__(kThreads)
    scale_rows(const T* gradient, const Wide<T>* dloss, std::int64_t rows, int classes, bool add,
               T* dlogits) {
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t r = std::int64_t{blockIdx.x} * (kThreads / kRowThreads) + thread / kRowThreads;
  if (r >= rows) return;
  const Wide<T> factor = dloss[r];
  const T* from = gradient + r * classes;
  T* to = dlogits + r * classes;
  for_runs<kVector, kRowThreads>(from, classes, thread % kRowThreads,
                                 [&]<int kCount>(int c, Count<kCount>) {
                                   Wide<T> value[kCount], before[kCount] = {};
                                   load_floats<kCount>(from + c, value);
                                   if (add) load_floats<kCount>(to + c, before);
#pragma unroll
                                   for (int i = 0; i < kCount; ++i)
                                     value[i] = before[i] + value[i] * factor;
                                   store_floats<kCount>(to + c, value);
                                 });
}

// A single block: thread i % kTotalsThreads adds row i, so that every sum has one order.
template <class N>
__global__ void __launch_bounds__(kTotalsThreads)
    add_totals(const std::int32_t* ranks, const N* loss, std::int64_t rows, bool top5,
               BatchTotals* totals, BatchTotals* more) {
  BatchTotals* partial = block_shared<BatchTotals[kTotalsThreads / kWarp]>();
  BatchTotals sum{};
#pragma unroll 4
  for (std::int64_t r = threadIdx.x; r < rows; r += kTotalsThreads) {
    sum.loss_sum += static_cast<double>(loss[r]);
    const std::int32_t rank = ranks == nullptr ? kNoRank : ranks[r];
    sum.rows += ranks == nullptr || rank != kNoRank;
    sum.correct += rank != kNoRank && rank < 1;
    sum.top5 += rank != kNoRank && rank < 5;
  }
  sum.loss_sum = warp_sum(sum.loss_sum);
  sum.correct = warp_sum(sum.correct);
  sum.rows = warp_sum(sum.rows);
  sum.top5 = warp_sum(sum.top5);
  if (lane_index() == 0) partial[warp_index()] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kTotalsThreads / kWarp; ++w) {
    sum.loss_sum += partial[w].loss_sum;
    sum.correct += partial[w].correct;
    sum.rows += partial[w].rows;
    sum.top5 += partial[w].top5;
  }
  for (BatchTotals* to : {totals, more}) {
    if (to == nullptr) continue;
    to->loss_sum += sum.loss_sum;
    to->correct += sum.correct;
    to->rows += sum.rows;
    if (top5) to->top5 += sum.top5;
  }
}

template <class T>
void start_forward(KernelContext& context, const SoftmaxCrossEntropyForward& o) {
  const std::int64_t rows = o.logits.shape[0];
  const int classes = static_cast<int>(o.logits.shape[1]);
  const Target<Wide<T>> target{
      static_cast<Wide<T>>(o.label_smoothing),
      static_cast<Wide<T>>(o.label_smoothing / static_cast<double>(classes))};
  const ForwardOperands<T> operands{.logits = o.logits.as<T>(),
                                    .labels = o.labels.as<std::int32_t>(),
                                    .rows = rows,
                                    .classes = classes,
                                    .target = target,
                                    .loss = o.loss.as<Wide<T>>(),
                                    .gradient = o.gradient.as<T>(),
                                    .ranks = o.ranks.as<std::int32_t>()};
  const auto start = [&](auto kernel, std::int64_t blocks, int threads, std::size_t shared) {
    launch("softmax_cross_entropy_forward", kernel, {static_cast<unsigned>(blocks)}, threads,
           shared, context.stream, operands);
  };
  if constexpr (std::is_same_v<T, double>) {
    return start(forward_by_blocks<T, 1, kThreads>, rows, kThreads, sizeof(BlockParts<double>));
  } else {
    const std::int64_t warp_blocks = divide_up(rows, kWarps);
    if (classes <= 4 * kWarp) return start(forward_by_warps<T, 4>, warp_blocks, kThreads, 0);
    if (classes <= 32 * kWarp) return start(forward_by_warps<T, 32>, warp_blocks, kThreads, 0);
    const bool is_long = static_cast<std::size_t>(classes) * sizeof(T) > kLongRow;
    const auto with_vector = [&]<int kVector>(Count<kVector>) {
      is_long ? start(forward_by_blocks<T, kVector, kLongRowThreads>, rows, kLongRowThreads,
                      sizeof(BlockParts<float>))
              : start(forward_by_blocks<T, kVector, kThreads>, rows, kThreads,
                      sizeof(BlockParts<float>));
    };
    aligned_to_16({operands.logits, operands.gradient}) ? with_vector(Count<Packed<T>::kCount>{})
                                                        : with_vector(Count<1>{});
  }
}

}  // namespace

void softmax_cross_entropy_forward(KernelContext& context, const SoftmaxCrossEntropyForward& o) {
  const std::int64_t rows = o.logits.shape[0], classes = o.logits.shape[1];
  if (rows == 0) return;
  check_range(context, o.labels.as<std::int32_t>(), rows, classes, kNoLabel);
  with_any_storage(o.logits.dtype, [&]<class T>(T) { start_forward<T>(context, o); });
}

void softmax_cross_entropy_backward(KernelContext& context, const SoftmaxCrossEntropyBackward& o) {
  const std::int64_t rows = o.gradient.shape[0];
  const int classes = static_cast<int>(o.gradient.shape[1]);
  if (rows == 0) return;
  with_any_storage(o.gradient.dtype, [&]<class T>(T) {
    const auto start = [&](auto kernel, int row_threads) {
      launch("softmax_cross_entropy_backward", kernel,
             {static_cast<unsigned>(divide_up(rows, kThreads / row_threads))}, kThreads, 0,
             context.stream, o.gradient.as<T>(), o.dloss.as<Wide<T>>(), rows, classes,
             o.write == Write::kAdd, o.dlogits.as<T>());
    };
    const auto with_vector = [&]<int kVector>(Count<kVector>) {
      classes <= 512 * kVector ? start(scale_rows<T, kWarp, kVector>, kWarp)
                               : start(scale_rows<T, kThreads, kVector>, kThreads);
    };
    if constexpr (!std::is_same_v<T, double>)
      if (aligned_to_16({o.gradient.data, o.dlogits.data}))
        return with_vector(Count<Packed<T>::kCount>{});
    with_vector(Count<1>{});
  });
}

void add_batch_totals(KernelContext& context, const AddBatchTotals& o) {
  const std::int64_t rows = o.loss.shape[0];
  if (rows == 0) return;
  const auto start = [&]<class N>(N) {
    launch("add_batch_totals", add_totals<N>, {1}, kTotalsThreads,
           kTotalsThreads / kWarp * sizeof(BatchTotals), context.stream, o.ranks.as<std::int32_t>(),
           o.loss.as<N>(), rows, o.top5, o.totals, o.more);
  };
  o.loss.dtype == DType::kF64 ? start(double{}) : start(float{});
}

}  // namespace engine::ops::cuda
