// Softmax with cross entropy in float32. Rows that fit into L1 together pass side by side through
// three passes, the largest logit, the sum of exp, and the gradient from the exps. So the sums
// across the lanes of one row overlap with the arithmetic of the others, and one log serves all.
// Longer rows are processed one by one, in blocks; each block stores the largest logit known when
// its exps were computed (the online softmax of Milakov and Gimelshein, arXiv 1805.02867), so that
// logits are read from memory once. The gradient may overwrite the logits: everything else is
// computed from them before. Bound by bytes for long rows, and by the exps, about ten cycles per
// vector, for short ones.
#include "engine/ops/loss/softmax_cross_entropy_cpu.h"

#include "engine/ops/common/cpu_operands.h"
#include "engine/ops/common/flat_loops.h"
#include "engine/ops/common/simd_math.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kGroupFloats = 4096;  // exps of rows that are computed together: half of L1
constexpr std::int64_t kBlock = 1024,
                       kMaxBlocks = 64;  // per longer row; the blocks of even longer rows are
                                         // longer
constexpr float kLog2E = 0x1.715476p+0f;
constexpr int kBehindAll = 8;  // a NaN adds this to a rank: more than any rank that matters

ENGINE_INLINE std::int64_t padded(std::int64_t count) {
  return (count + kWidth - 1) / kWidth * kWidth;
}

// May ignore a NaN: it shows in the sum.
float largest_of(const float* row, std::int64_t classes) {
  Floats tops[4] = {broadcast(row[0]), broadcast(row[0]), broadcast(row[0]), broadcast(row[0])};
  std::int64_t c = 0;
  for (; c + 4 * kWidth <= classes; c += 4 * kWidth)
    for (int i = 0; i < 4; ++i) tops[i] = max(load(row + c + i * kWidth), tops[i]);
  for_each_vector(c, classes, [&](auto lanes, std::int64_t i) {
    tops[0] = max(lanes.choose(lanes.load_from(row + i), tops[0]), tops[0]);
  });
  return horizontal_max(max(max(tops[0], tops[1]), max(tops[2], tops[3])));
}

// Writes exp(row - largest) to `to`, and returns its sum. kPadded: `to` is a whole number of
// vectors.
template <bool kPadded>
float sum_of_exp(const float* row, std::int64_t classes, float largest, float* to) {
  const Floats top = broadcast(largest), unit = broadcast(kLog2E);
  Floats sum = zero();
  for_each_vector(0, classes, [&](auto lanes, std::int64_t c) {
    const Floats e = exp2((lanes.load_from(row + c) - top) * unit);
    if constexpr (kPadded) {
      store(to + c, e);
    } else if (to != nullptr) {
      lanes.store_to(to + c, e);
    }
    sum += lanes.choose(e, zero());
  });
  return horizontal_sum(sum);
}

// Returns the number of classes in [first, last) that rank before the label, whose logit is `own`.
ENGINE_INLINE std::int32_t rank_part(const float* row, std::int64_t first, std::int64_t last,
                                     std::int32_t label, float own) {
  const Floats of_label = broadcast(own), none = broadcast(-__builtin_inff()), one = broadcast(1.f),
               nan = broadcast(__builtin_nanf(""));
  Floats before = zero(), nans = zero();
  for_each_vector(first, last, [&](auto lanes, std::int64_t c) {
    const Floats v = lanes.choose(lanes.load_from(row + c), none);
    before += select(v > of_label, one, zero());
    nans += select(v != v, one, zero());
  });
  for_each_vector(first, smaller(last, label), [&](auto lanes, std::int64_t c) {
    const Floats v = lanes.choose(lanes.load_from(row + c), nan);
    before += select(v == of_label, one, zero());
  });
  return static_cast<std::int32_t>(horizontal_sum(before)) +
         (horizontal_sum(nans) > 0 ? kBehindAll : 0);
}

// Returns the sum of row - largest, in float32 within short blocks.
double sum_below(const float* row, std::int64_t classes, float largest) {
  constexpr std::int64_t kPart = 32 * kWidth;
  double sum = 0;
  for (std::int64_t first = 0; first < classes; first += kPart) {
    Floats part = zero();
    for_each_vector(first, smaller(classes, first + kPart), [&](auto lanes, std::int64_t c) {
      part += lanes.choose(lanes.load_from(row + c) - broadcast(largest), zero());
    });
    sum += static_cast<double>(horizontal_sum(part));
  }
  return sum;
}

struct Row {
  const float* logits;
  std::int64_t classes;
  std::int32_t label;
  float smoothing;
};

// `below` is sum_below() of the row; it is used only if labels are smoothed.
ENGINE_INLINE float loss_of(const Row& row, float own, float largest, float log_sum, double below) {
  const float loss = log_sum - (own - largest);
  if (row.smoothing == 0) return loss;
  // The sum of the losses with each class as the label.
  const double all = static_cast<double>(row.classes) * static_cast<double>(log_sum) - below;
  return (1 - row.smoothing) * loss +
         row.smoothing / static_cast<float>(row.classes) * static_cast<float>(all);
}

// Writes classes [first, last) of the gradient, without the label's term: exps * factor - share.
ENGINE_INLINE void put_gradient(const Row& row, const float* exps, float factor, float* gradient,
                                std::int64_t first, std::int64_t last) {
  const Floats scale = broadcast(factor),
               shift = broadcast(row.smoothing / static_cast<float>(row.classes));
  for_each_vector(first, last, [=](auto lanes, std::int64_t c) {
    lanes.store_to(gradient + c, lanes.load_from(exps + c) * scale - shift);
  });
}

ENGINE_INLINE void leave_out(std::int64_t classes, float* loss, float* gradient,
                             std::int32_t* rank) {
  *loss = 0;
  if (rank != nullptr) *rank = kNoRank;
  if (gradient != nullptr)
    for_each_vector(0, classes,
                    [=](auto lanes, std::int64_t c) { lanes.store_to(gradient + c, zero()); });
}

// Processes `count` <= kWidth rows starting at `first`, whose padded lengths add up to at most
// kGroupFloats.
void forward_group(const Row& first, const std::int32_t* labels, std::int64_t count, float* loss,
                   float* gradient, std::int32_t* ranks) {
  alignas(64) float exps[kGroupFloats];
  float largest[kWidth], sums[kWidth], logs[kWidth], factors[kWidth];
  const std::int64_t classes = first.classes, length = padded(classes);
  for (std::int64_t r = 0; r < count; ++r)
    largest[r] = largest_of(first.logits + r * classes, classes);
  store(sums, broadcast(1.f));
  for (std::int64_t r = 0; r < count; ++r)
    sums[r] = sum_of_exp<true>(first.logits + r * classes, classes, largest[r], exps + r * length);
  store(logs, log(load(sums)));
  store(factors, broadcast(1.f) / load(sums));
  for (std::int64_t r = 0; r < count; ++r) {
    const Row row{first.logits + r * classes, classes, labels[r], first.smoothing};
    if (row.label == kNoLabel) {
      leave_out(classes, loss + r, gradient == nullptr ? nullptr : gradient + r * classes,
                ranks == nullptr ? nullptr : ranks + r);
      continue;
    }
    const float own = row.logits[row.label];
    loss[r] = loss_of(row, own, largest[r], logs[r],
                      row.smoothing == 0 ? 0 : sum_below(row.logits, classes, largest[r]));
    if (ranks != nullptr) ranks[r] = rank_part(row.logits, 0, classes, row.label, own);
    if (gradient == nullptr) continue;
    float* to = gradient + r * classes;
    put_gradient(row, exps + r * length, factors[r], to, 0, classes);
    to[row.label] -= 1 - row.smoothing;
  }
}

void forward_long_row(const Row& row, float* loss, float* gradient, std::int32_t* rank) {
  if (row.label == kNoLabel) return leave_out(row.classes, loss, gradient, rank);
  const std::int64_t block = larger(kBlock, padded((row.classes + kMaxBlocks - 1) / kMaxBlocks));
  const std::int64_t blocks = (row.classes + block - 1) / block;
  float tops[kMaxBlocks], sum = 0;
  float top = -__FLT_MAX__;  // not -infinity: the first blocks may be all -infinity
  const float own = row.logits[row.label];
  double below[kMaxBlocks];
  std::int32_t before = 0;
  const auto shrink = [&](float from) {
    return horizontal_max(exp2(broadcast(from - top) * broadcast(kLog2E)));
  };
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t first = b * block, count = smaller(row.classes - first, block);
    const float largest = largest_of(row.logits + first, count), lower = top;
    if (largest > top) top = largest, sum *= shrink(lower);
    tops[b] = top;
    if (row.smoothing != 0) below[b] = sum_below(row.logits + first, count, top);
    if (rank != nullptr) before += rank_part(row.logits, first, first + count, row.label, own);
    sum += sum_of_exp<false>(row.logits + first, count, top,
                             gradient == nullptr ? nullptr : gradient + first);
  }
  double all_below = 0;
  if (row.smoothing != 0)
    for (std::int64_t b = 0; b < blocks; ++b)
      all_below += below[b] + (static_cast<double>(tops[b]) - static_cast<double>(top)) *
                                  static_cast<double>(smaller(row.classes - b * block, block));
  *loss = loss_of(row, own, top, horizontal_max(log(broadcast(sum))), all_below);
  if (rank != nullptr) *rank = before;
  if (gradient == nullptr) return;
  for (std::int64_t b = 0; b < blocks; ++b)
    put_gradient(row, gradient, shrink(tops[b]) / sum, gradient, b * block,
                 smaller(row.classes, (b + 1) * block));
  gradient[row.label] -= 1 - row.smoothing;
}

void forward(const SoftmaxCrossEntropyForward& o, const RowSizes& sizes, ThreadPool& threads) {
  const std::int64_t classes = sizes.width, group = smaller(kGroupFloats / padded(classes), kWidth);
  const float* logits = floats(o.logits);
  const std::int32_t* labels = integers(o.labels);
  float *loss = floats(o.loss), *gradient = floats(o.gradient);
  std::int32_t* ranks = integers(o.ranks);
  const float smoothing = static_cast<float>(o.label_smoothing);
  threads.run(sizes.rows, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t r = first; r < last; r += larger(group, 1)) {
      const Row row{logits + r * classes, classes, labels[r], smoothing};
      float* to = gradient == nullptr ? nullptr : gradient + r * classes;
      std::int32_t* row_ranks = ranks == nullptr ? nullptr : ranks + r;
      if (group > 0) {
        forward_group(row, labels + r, smaller(last - r, group), loss + r, to, row_ranks);
      } else {
        forward_long_row(row, loss + r, to, row_ranks);
      }
    }
  });
}

}  // namespace

const SoftmaxCrossEntropyTable softmax_cross_entropy_table{forward};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
