// Dropout of attention's probabilities on a CUDA device: the words that attention.h defines, and
// which lanes draw them. For .cu files only.
#pragma once

#include "engine/ops/attention/attention_operands.h"
#include "engine/ops/device/philox_cuda.h"

namespace engine::ops::cuda {

// The dropout of one problem (a head of a sample).
struct ProblemDropout {
  std::uint64_t key, epoch, first, row_blocks;
  std::uint32_t threshold;
  float factor;
  bool active;

  template <class T>
  __device__ ProblemDropout(const AttentionOperands<T>& o, std::int64_t problem)
      : key(o.key),
        epoch(o.epoch != nullptr && o.sample_ids != nullptr ? *o.epoch : o.fixed_epoch),
        first(0),
        row_blocks(static_cast<std::uint64_t>((o.t + 3) / 4)),
        threshold(o.threshold),
        factor(o.factor),
        active(o.sample_ids != nullptr) {
    if (active)
      first = static_cast<std::uint64_t>(
                  ((o.sample_ids[problem / o.heads] * o.heads + problem % o.heads) * o.t)) *
              row_blocks;
  }
  // Returns the words of query i and keys 4 * (j / 4) to 4 * (j / 4) + 3.
  __device__ PhiloxWords words(std::int64_t i, std::int64_t j) const {
    return philox_words(
        key, epoch,
        first + static_cast<std::uint64_t>(i) * row_blocks + static_cast<std::uint64_t>(j / 4));
  }
  __device__ float kept(std::uint32_t word) const {
    return (word >> 8) >= threshold ? factor : 0.0f;
  }
};

// Draws the dropout factors of a result tile with queries i to i + 15 (rows) and keys j to j + 7.
// Two lanes share the Philox words of both their rows; each draws those of one row.
__device__ __forceinline__ void draw_by_queries(const ProblemDropout& dropout, std::int64_t i,
                                                std::int64_t j, float (&factors)[4]) {
  const int lane = lane_index(), t = lane % 4;
  const bool even = t % 2 == 0;
  const PhiloxWords own = dropout.words(i + lane / 4 + (even ? 0 : 8), j + 2 * t);
  const std::uint32_t first = shuffle_xor(even ? own.at[2] : own.at[0], 1),
                      second = shuffle_xor(even ? own.at[3] : own.at[1], 1);
  factors[0] = dropout.kept(even ? own.at[0] : first);
  factors[1] = dropout.kept(even ? own.at[1] : second);
  factors[2] = dropout.kept(even ? first : own.at[2]);
  factors[3] = dropout.kept(even ? second : own.at[3]);
}

// The same for keys j to j + 15 (rows) and queries i to i + 7. Four lanes with adjacent keys need
// one word each of the same four blocks of words; each draws one block, and they exchange.
__device__ __forceinline__ void draw_by_keys(const ProblemDropout& dropout, std::int64_t j,
                                             std::int64_t i, float (&factors)[4]) {
  const int lane = lane_index(), g = lane / 4, t = lane % 4;
  const bool upper = g % 4 >= 2, odd = g % 2 == 1;
  const PhiloxWords own = dropout.words(i + 2 * t + (odd ? 1 : 0), j + g / 4 * 4 + (upper ? 8 : 0));
  std::uint32_t w[4];
#pragma unroll
  for (int k = 0; k < 2;
       ++k) {  // exchanges the upper half of lower lanes with the lower half of upper lanes
    const std::uint32_t other = shuffle_xor(upper ? own.at[k] : own.at[k + 2], 8);
    w[k] = upper ? other : own.at[k];
    w[k + 2] = upper ? own.at[k + 2] : other;
  }
#pragma unroll
  for (int k = 0; k < 4; k += 2) {
    const std::uint32_t other = shuffle_xor(odd ? w[k] : w[k + 1], 4);
    factors[k] = dropout.kept(odd ? other : w[k]);
    factors[k + 1] = dropout.kept(odd ? w[k + 1] : other);
  }
}

}  // namespace engine::ops::cuda
