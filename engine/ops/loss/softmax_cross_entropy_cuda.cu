// A warp a row where the row fits into its registers (up to 1024 classes: the logits are read
// once), else a block a row, which reads it twice, 16 bytes at a time where rows allow it.
// Exponentials are relative to finite numbers or to +inf, so that rows with infinite logits come
// out as in the reference. Totals go through sums of each block in scratch. Bound: bytes.
#include "engine/ops/loss/softmax_cross_entropy_cuda.h"

#include "engine/ops/device/device_code.h"
#include "engine/ops/device/float_access.h"
#include "engine/ops/device/range_check_cuda.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kTotalsBlocks = 256;
constexpr float kLowest = -3.402823466e38f;

__device__ __forceinline__ int safe_label(std::int32_t label, int classes) {
  return label >= 0 && label < classes ? label : 0;
}

struct Target {
  float smoothing, share;  // share: of every class
};

// `sum` of exp(logit - largest), `all` of logit - largest over the row; `own`: logit - largest at
// the label.
__device__ __forceinline__ float row_loss(float sum, float all, float own, int classes,
                                          Target target) {
  const float log_sum = logf(sum), loss = log_sum - own;
  if (target.smoothing == 0) return loss;
  return (1 - target.smoothing) * loss +
         target.share * (static_cast<float>(classes) * log_sum - all);
}

__device__ __forceinline__ float target_at(int c, int label, Target target) {
  return (c == label ? 1 - target.smoothing : 0.0f) + target.share;
}

template <class T, int kEach>
__global__ void __launch_bounds__(kThreads)
    forward_by_warps(const T* logits, const std::int32_t* labels, std::int64_t rows, int classes,
                     Target target, float* loss, T* gradient) {
  const std::int64_t r = std::int64_t{blockIdx.x} * kWarps + warp_index();
  if (r >= rows) return;
  const T* row = logits + r * classes;
  const int lane = lane_index(), label = safe_label(labels[r], classes);
  float value[kEach], largest = kLowest;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int c = i * kWarp + lane;
    value[i] = c < classes ? to_float(row[c]) : kLowest;
    largest = value[i] > largest ? value[i] : largest;
  }
  largest = warp_max(largest);
  float sum = 0, all = 0, own = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int c = i * kWarp + lane;
    if (c >= classes) continue;
    const float above = value[i] - largest;
    if (c == label) own = above;
    all += above;
    value[i] = expf(above);
    sum += value[i];
  }
  sum = warp_sum(sum);
  all = warp_sum(all);
  own = shuffle_from(own, label % kWarp);
  if (lane == 0) loss[r] = row_loss(sum, all, own, classes, target);
  if (gradient == nullptr) return;
  const float inverse = 1 / sum;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int c = i * kWarp + lane;
    if (c < classes)
      gradient[r * classes + c] = from_float<T>(value[i] * inverse - target_at(c, label, target));
  }
}

// The maximum over the block, as block_sum().
__device__ __forceinline__ float block_max(float value, float* partial) {
  value = warp_max(value);
  __syncthreads();
  if (lane_index() == 0) partial[warp_index()] = value;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) value = partial[w] > value ? partial[w] : value;
  return value;
}

// One pass for the largest logit and the sum of exponentials relative to the largest so far
// (Milakov and Gimelshein, 2018).
template <class T, int kVector>
__global__ void __launch_bounds__(kThreads)
    forward_by_blocks(const T* logits, const std::int32_t* labels, int classes, Target target,
                      float* loss, T* gradient) {
  float* partial = block_shared<float[kWarps]>();
  const std::int64_t r = blockIdx.x;
  const T* row = logits + r * classes;
  const int thread = static_cast<int>(threadIdx.x), label = safe_label(labels[r], classes);
  float largest = kLowest, sum = 0, all = 0, value[kVector];
#pragma unroll 2
  for (int c = thread * kVector; c < classes; c += kThreads * kVector) {
    load_floats<kVector>(row + c, value);
    float top = largest;
#pragma unroll
    for (int i = 0; i < kVector; ++i) top = value[i] > top ? value[i] : top;
    sum *= expf(largest - top);
    largest = top;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      sum += expf(value[i] - largest);
      all += value[i];
    }
  }
  const float top = block_max(largest, partial);
  sum = block_sum(sum * expf(largest - top), partial);
  all = block_sum(all, partial) - static_cast<float>(classes) * top;
  if (thread == 0) loss[r] = row_loss(sum, all, to_float(row[label]) - top, classes, target);
  if (gradient == nullptr) return;
  const float inverse = 1 / sum;
#pragma unroll 2
  for (int c = thread * kVector; c < classes; c += kThreads * kVector) {
    load_floats<kVector>(row + c, value);
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      value[i] = expf(value[i] - top) * inverse - target_at(c + i, label, target);
    store_floats<kVector>(gradient + r * classes + c, value);
  }
}

// kRowThreads threads a row.
template <class T, int kRowThreads, int kVector>
__global__ void __launch_bounds__(kThreads)
    scale_rows(const T* gradient, const float* dloss, std::int64_t rows, int classes, bool add,
               T* dlogits) {
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t r = std::int64_t{blockIdx.x} * (kThreads / kRowThreads) + thread / kRowThreads;
  if (r >= rows) return;
  const float factor = dloss[r];
  for (int c = thread % kRowThreads * kVector; c < classes; c += kRowThreads * kVector) {
    float value[kVector], before[kVector] = {};
    load_floats<kVector>(gradient + r * classes + c, value);
    if (add) load_floats<kVector>(dlogits + r * classes + c, before);
#pragma unroll
    for (int i = 0; i < kVector; ++i) value[i] = before[i] + value[i] * factor;
    store_floats<kVector>(dlogits + r * classes + c, value);
  }
}

// Rows are dealt to warps by number, so that every sum has one order. Totals of block b go to
// parts[b].
template <class T>
__global__ void __launch_bounds__(kThreads)
    totals_of_blocks(const T* logits, const std::int32_t* labels, const float* loss,
                     std::int64_t rows, int classes, BatchTotals* parts) {
  BatchTotals* partial = block_shared<BatchTotals[kWarps]>();
  BatchTotals sum{};
  for (std::int64_t r = std::int64_t{blockIdx.x} * kWarps + warp_index(); r < rows;
       r += std::int64_t{gridDim.x} * kWarps) {
    const T* row = logits + r * classes;
    const int label = safe_label(labels[r], classes);
    const float own = to_float(row[label]);
    int before = 0;  // classes that come before the label's; a NaN puts the label behind all
    for (int c = lane_index(); c < classes; c += kWarp) {
      const float value = to_float(row[c]);
      if (value > own || (value == own && c < label)) ++before;
      if (value != value) before += 8;
    }
    before = warp_sum(before);
    sum.loss_sum += static_cast<double>(loss[r]);
    sum.correct += before < 1;
    sum.top5 += before < 5;
  }
  if (lane_index() == 0) partial[warp_index()] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kWarps; ++w) {
    sum.loss_sum += partial[w].loss_sum;
    sum.correct += partial[w].correct;
    sum.top5 += partial[w].top5;
  }
  parts[blockIdx.x] = sum;
}

__global__ void add_totals(const BatchTotals* parts, int count, std::int64_t rows, bool top5,
                           BatchTotals* totals) {
  BatchTotals sum{};
  for (int i = lane_index(); i < count; i += kWarp) {
    sum.loss_sum += parts[i].loss_sum;
    sum.correct += parts[i].correct;
    sum.top5 += parts[i].top5;
  }
  sum.loss_sum = warp_sum(sum.loss_sum);
  sum.correct = warp_sum(sum.correct);
  sum.top5 = warp_sum(sum.top5);
  if (lane_index() != 0) return;
  totals->loss_sum += sum.loss_sum;
  totals->correct += sum.correct;
  totals->rows += rows;
  if (top5) totals->top5 += sum.top5;
}

template <class T>
void start_forward(KernelContext& context, const SoftmaxCrossEntropyForward& o, Target target) {
  const std::int64_t rows = o.logits.shape[0];
  const int classes = static_cast<int>(o.logits.shape[1]);
  const T* logits = o.logits.as<T>();
  const auto* labels = o.labels.as<std::int32_t>();
  auto* loss = o.loss.as<float>();
  T* gradient = o.gradient.as<T>();
  const Grid grid{static_cast<unsigned>(divide_up(rows, kWarps))};
  const auto by_warps = [&](auto kernel) {
    launch("softmax_cross_entropy_forward", kernel, grid, kThreads, 0, context.stream, logits,
           labels, rows, classes, target, loss, gradient);
  };
  if (classes <= 4 * kWarp) return by_warps(forward_by_warps<T, 4>);
  if (classes <= 32 * kWarp) return by_warps(forward_by_warps<T, 32>);
  const auto by_blocks = [&](auto kernel) {
    launch("softmax_cross_entropy_forward", kernel, {static_cast<unsigned>(rows)}, kThreads,
           kWarps * sizeof(float), context.stream, logits, labels, classes, target, loss, gradient);
  };
  rows_are_aligned<T>(classes, logits, gradient)
      ? by_blocks(forward_by_blocks<T, Packed<T>::kCount>)
      : by_blocks(forward_by_blocks<T, 1>);
}

}  // namespace

std::size_t batch_totals_scratch_bytes() { return kTotalsBlocks * sizeof(BatchTotals); }

void softmax_cross_entropy_forward(KernelContext& context, const SoftmaxCrossEntropyForward& o) {
  const std::int64_t rows = o.logits.shape[0], classes = o.logits.shape[1];
  if (rows == 0) return;
  check_range(context, o.labels.as<std::int32_t>(), rows, classes);
  const Target target{static_cast<float>(o.label_smoothing),
                      static_cast<float>(o.label_smoothing / static_cast<double>(classes))};
  with_storage(o.logits.dtype, [&]<class T>(T) { start_forward<T>(context, o, target); });
}

void softmax_cross_entropy_backward(KernelContext& context, const SoftmaxCrossEntropyBackward& o) {
  const std::int64_t rows = o.gradient.shape[0];
  const int classes = static_cast<int>(o.gradient.shape[1]);
  if (rows == 0) return;
  with_storage(o.gradient.dtype, [&]<class T>(T) {
    const auto start = [&](auto kernel, int row_threads) {
      launch("softmax_cross_entropy_backward", kernel,
             {static_cast<unsigned>(divide_up(rows, kThreads / row_threads))}, kThreads, 0,
             context.stream, o.gradient.as<T>(), o.dloss.as<float>(), rows, classes,
             o.write == Write::kAdd, o.dlogits.as<T>());
    };
    const auto with_vector = [&]<int kVector>(std::integral_constant<int, kVector>) {
      classes <= 512 * kVector ? start(scale_rows<T, kWarp, kVector>, kWarp)
                               : start(scale_rows<T, kThreads, kVector>, kThreads);
    };
    rows_are_aligned<T>(classes, o.gradient.as<T>(), o.dlogits.as<T>())
        ? with_vector(std::integral_constant<int, Packed<T>::kCount>{})
        : with_vector(std::integral_constant<int, 1>{});
  });
}

void add_batch_totals(KernelContext& context, const AddBatchTotals& o) {
  const std::int64_t rows = o.logits.shape[0];
  if (rows == 0) return;
  const std::int64_t needed = divide_up(rows, kWarps);
  const int blocks = static_cast<int>(needed < kTotalsBlocks ? needed : kTotalsBlocks);
  auto* parts = reinterpret_cast<BatchTotals*>(context.scratch.data());
  with_storage(o.logits.dtype, [&]<class T>(T) {
    launch("batch_totals", totals_of_blocks<T>, {static_cast<unsigned>(blocks)}, kThreads,
           kWarps * sizeof(BatchTotals), context.stream, o.logits.as<T>(),
           o.labels.as<std::int32_t>(), o.loss.as<float>(), rows,
           static_cast<int>(o.logits.shape[1]), parts);
  });
  launch("add_batch_totals", add_totals, {1}, kWarp, 0, context.stream, parts, blocks, rows, o.top5,
         o.totals);
}

}  // namespace engine::ops::cuda
