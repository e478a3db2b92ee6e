// Softmax with cross entropy in float32, row by row: largest, sum of exp, and the gradient from the
// exps that were just written.
#include "engine/ops/loss/softmax_cross_entropy_cpu.h"

#include "engine/ops/common/cpu_operands.h"
#include "engine/ops/common/flat_loops.h"
#include "engine/ops/common/simd_math.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

// exp(row - largest) into `to`, unless that is nullptr, and the sum of it. The tail goes one by
// one, padded with -infinity.
float sum_of_exp(const float* row, std::int64_t classes, float largest, float* to) {
  const Floats top = broadcast(largest);
  Floats sums = zero();
  std::int64_t c = 0;
  for (; c + kWidth <= classes; c += kWidth) {
    const Floats e = exp(load(row + c) - top);
    if (to != nullptr) store(to + c, e);
    sums += e;
  }
  if (c < classes) {
    float tail[kWidth];
    for (std::int64_t i = 0; i < kWidth; ++i)
      tail[i] = c + i < classes ? row[c + i] - largest : -__builtin_inff();
    const Floats e = exp(load(tail));
    if (to != nullptr) store_partial(to + c, e, classes - c);
    sums += e;
  }
  return horizontal_sum(sums);
}

float largest_of(const float* row,
                 std::int64_t classes) {  // a NaN may be passed over: it shows in the sum
  Floats tops = broadcast(row[0]);
  std::int64_t c = 0;
  for (; c + kWidth <= classes; c += kWidth) tops = max(load(row + c), tops);
  float largest = horizontal_max(tops);
  for (; c < classes; ++c) largest = row[c] > largest ? row[c] : largest;
  return largest;
}

void forward_row(const float* row, std::int32_t label, std::int64_t classes, float* loss,
                 float* gradient, float smoothing) {
  const float largest = largest_of(row, classes), sum = sum_of_exp(row, classes, largest, gradient);
  const float log_sum = __builtin_logf(sum), share = smoothing / static_cast<float>(classes);
  *loss = log_sum - (row[label] - largest);
  if (smoothing > 0) {
    double all = 0;  // what the loss would be with each class as the label, added up
    for (std::int64_t c = 0; c < classes; ++c)
      all += static_cast<double>(log_sum - (row[c] - largest));
    *loss = (1 - smoothing) * *loss + share * static_cast<float>(all);
  }
  if (gradient == nullptr) return;
  const Floats factor = broadcast(1.f / sum), shift = broadcast(share);
  for_each_vector(0, classes, [=](auto lanes, std::int64_t c) {
    lanes.store_to(gradient + c, lanes.load_from(gradient + c) * factor - shift);
  });
  gradient[label] -= 1 - smoothing;
}

void forward(const SoftmaxCrossEntropyForward& o, const RowSizes& sizes, ThreadPool& threads) {
  const std::int64_t classes = sizes.width;
  const float* logits = floats(o.logits);
  const std::int32_t* labels = integers(o.labels);
  float *loss = floats(o.loss), *gradient = floats(o.gradient);
  const float smoothing = static_cast<float>(o.label_smoothing);
  threads.run(sizes.rows, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t r = first; r < last; ++r)
      forward_row(logits + r * classes, labels[r], classes, loss + r,
                  gradient == nullptr ? nullptr : gradient + r * classes, smoothing);
  });
}

}  // namespace

const SoftmaxCrossEntropyTable softmax_cross_entropy_table{forward};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
