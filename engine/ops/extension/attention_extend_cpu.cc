// Attention of the next positions of one head in float32, a query at a time.
//
// A text is extended by one position mostly, for which tiles would be nearly empty: this is bound
// by reading the kept keys and values once. The keys are processed in blocks whose scores stay in
// L1, with a running maximum and sum as in attention_cpu.cc. The order of all sums depends on the
// position only.
#include "engine/ops/extension/attention_extend_cpu.h"

#include "engine/ops/common/flat_loops.h"
#include "engine/ops/common/simd_math.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kBlock = 128;  // keys
constexpr float kLog2E = 0x1.715476p+0f;

void copy_rows(const float* from, std::int64_t stride, std::int64_t rows, std::int64_t size,
               float* to) {
  for (std::int64_t i = 0; i < rows; ++i)
    for_each_vector(0, size, [=](auto lanes, std::int64_t c) {
      lanes.store_to(to + i * size + c, lanes.load_from(from + i * stride + c));
    });
}

ENGINE_INLINE Floats product(const float* a, const float* b, std::int64_t size) {
  Floats sum = zero();
  for_each_vector(0, size, [&](auto lanes, std::int64_t c) {
    sum += lanes.load_from(a + c) * lanes.load_from(b + c);
  });
  return sum;
}

// Writes the scores of a block in units of log(2); -infinity up to a multiple of kWidth. Returns
// the largest.
ENGINE_INLINE float block_scores(const float* q, const float* keys, std::int64_t count,
                                 std::int64_t size, float factor, float* scores) {
  for (std::int64_t j = 0; j < count; j += 4) {
    const auto of = [&](std::int64_t i) {
      return product(q, keys + smaller(j + i, count - 1) * size, size);
    };
    store_quad(scores + j, horizontal_sums(of(0), of(1), of(2), of(3)));
  }
  Floats largest = broadcast(-__builtin_inff());
  for (std::int64_t j = 0; j < count; j += kWidth) {
    const Floats scaled = load(scores + j) * broadcast(factor);
    const Floats seen =
        select(first_lanes(smaller(count - j, kWidth)), scaled, broadcast(-__builtin_inff()));
    store(scores + j, seen);
    largest = max(largest, seen);
  }
  return horizontal_max(largest);
}

// Replaces scores by 2^(score - largest) and returns their sum.
ENGINE_INLINE float block_weights(std::int64_t count, float largest, float* scores) {
  Floats sum = zero();
  for (std::int64_t j = 0; j < count; j += kWidth) {
    const Floats p = select(first_lanes(smaller(count - j, kWidth)),
                            exp2(load(scores + j) - broadcast(largest)), zero());
    store(scores + j, p);
    sum += p;
  }
  return horizontal_sum(sum);
}

// y = y * shrink + the weighted sum of the block's values.
ENGINE_INLINE void add_values(const float* weights, const float* values, std::int64_t count,
                              std::int64_t size, float shrink, float* y) {
  for_each_vector(0, size, [=](auto lanes, std::int64_t c) {
    Floats even = lanes.load_from(y + c) * broadcast(shrink), odd = zero();
    const float* row = values + c;
    std::int64_t j = 0;
    for (; j + 2 <= count; j += 2, row += 2 * size) {
      even += broadcast(weights[j]) * lanes.load_from(row);
      odd += broadcast(weights[j + 1]) * lanes.load_from(row + size);
    }
    if (j < count) even += broadcast(weights[j]) * lanes.load_from(row);
    lanes.store_to(y + c, even + odd);
  });
}

void attend(const float* q, const float* keys, const float* values, std::int64_t count,
            std::int64_t size, float* y) {
  const float factor = kLog2E / __builtin_sqrtf(static_cast<float>(size));
  alignas(64) float scores[kBlock + kWidth] = {};
  float largest = -__builtin_inff(), sum = 0;
  for_each_vector(0, size, [=](auto lanes, std::int64_t c) { lanes.store_to(y + c, zero()); });
  for (std::int64_t first = 0; first < count; first += kBlock) {
    const std::int64_t keys_here = smaller(count - first, kBlock);
    const float of_block = block_scores(q, keys + first * size, keys_here, size, factor, scores);
    const float top = largest > of_block ? largest : of_block;
    const Floats shrunk = exp2(broadcast(largest - top));
    const float shrink = first == 0 ? 0.f : shrunk[0];
    sum = sum * shrink + block_weights(keys_here, top, scores);
    add_values(scores, values + first * size, keys_here, size, shrink, y);
    largest = top;
  }
  const Floats inverse = broadcast(1.f / sum);
  for_each_vector(0, size, [=](auto lanes, std::int64_t c) {
    lanes.store_to(y + c, lanes.load_from(y + c) * inverse);
  });
}

void extend(const ExtendedHead<float>& h) {
  copy_rows(h.k, h.qkv_stride, h.t, h.size, h.keys + h.earlier * h.size);
  copy_rows(h.v, h.qkv_stride, h.t, h.size, h.values + h.earlier * h.size);
  for (std::int64_t i = 0; i < h.t; ++i)
    attend(h.q + i * h.qkv_stride, h.keys, h.values, h.earlier + i + 1, h.size,
           h.y + i * h.y_stride);
}

}  // namespace

const AttentionExtendTable attention_extend_table{extend};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
