// Self-attention, causal or not: the fused kernels against a softmax written out in full, dropout's
// mask, threads, memory.
#include "engine/ops/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "engine/core/random.h"
#include "tests/engine/ops/common/bf16_test_support.h"
#include "tests/support/expect_contains.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

struct AttentionSizes {
  std::int64_t n, t, heads, size, kv_heads = heads;
  bool causal = true;
  std::int64_t seen(std::int64_t i) const { return causal ? i + 1 : t; }
  std::int64_t width() const { return heads * size; }
  std::int64_t stride() const { return (heads + 2 * kv_heads) * size; }
  std::string text() const {
    return "t " + std::to_string(t) + ", heads " + std::to_string(heads) + " and " +
           std::to_string(kv_heads) + " of " + std::to_string(size) +
           (causal ? "" : ", not causal");
  }
};
constexpr AttentionSizes kAttentionSizes[] = {
    {0, 5, 2, 8},      {1, 1, 1, 1},      {2, 7, 3, 5},    {1, 33, 2, 17},    {3, 64, 4, 32},
    {1, 65, 1, 40},    {1, 130, 2, 32},   {1, 300, 1, 16}, {1, 257, 1, 64},   {2, 7, 6, 5, 2},
    {1, 65, 4, 16, 1}, {1, 131, 4, 9, 2}, {0, 5, 4, 8, 2}, {1, 40, 2, 256, 1}};

std::vector<AttentionSizes> without_mask(std::span<const AttentionSizes> sizes) {
  std::vector<AttentionSizes> all(sizes.begin(), sizes.end());
  for (AttentionSizes& s : all) s.causal = false;
  return all;
}

// All in float64, with the whole matrix of probabilities of each head: y, lse and the gradient of
// qkv.
struct Naive {
  std::vector<double> y, lse, dqkv;

  Naive(const AttentionSizes& s, const std::vector<double>& qkv, const std::vector<double>& dy,
        const std::vector<double>& keep)
      : y(static_cast<std::size_t>(s.n * s.t * s.width())),
        lse(static_cast<std::size_t>(s.n * s.heads * s.t)),
        dqkv(qkv.size()) {
    for (std::int64_t sample = 0; sample < s.n; ++sample)
      for (std::int64_t h = 0; h < s.heads; ++h) head(s, qkv, dy, keep, sample, h);
  }

 private:
  void head(const AttentionSizes& s, const std::vector<double>& qkv, const std::vector<double>& dy,
            const std::vector<double>& keep, std::int64_t sample, std::int64_t h) {
    const double scale = 1 / std::sqrt(static_cast<double>(s.size));
    const std::int64_t kv = s.heads + h / (s.heads / s.kv_heads), heads[]{h, kv, kv + s.kv_heads};
    const auto in = [&](int part, std::int64_t i, std::int64_t c) {
      return static_cast<std::size_t>((sample * s.t + i) * s.stride() + heads[part] * s.size + c);
    };
    const auto out = [&](std::int64_t i, std::int64_t c) {
      return static_cast<std::size_t>((sample * s.t + i) * s.width() + h * s.size + c);
    };
    std::vector<std::vector<double>> p(static_cast<std::size_t>(s.t));
    for (std::int64_t i = 0; i < s.t; ++i) {
      std::vector<double>& row = p[static_cast<std::size_t>(i)];
      double sum = 0;
      for (std::int64_t j = 0; j < s.seen(i); ++j) {
        double score = 0;
        for (std::int64_t c = 0; c < s.size; ++c) score += qkv[in(0, i, c)] * qkv[in(1, j, c)];
        row.push_back(std::exp(score * scale));
        sum += row.back();
      }
      lse[static_cast<std::size_t>((sample * s.heads + h) * s.t + i)] = std::log(sum);
      for (double& value : row) value /= sum;
      const auto mask = [&](std::int64_t j) {
        return keep.empty()
                   ? 1.0
                   : keep[static_cast<std::size_t>(((sample * s.heads + h) * s.t + i) * s.t + j)];
      };
      std::vector<double> dp;
      double weight = 0;
      for (std::int64_t j = 0; j < s.seen(i); ++j) {
        const double probability = row[static_cast<std::size_t>(j)];
        dp.push_back(0);
        for (std::int64_t c = 0; c < s.size; ++c) {
          y[out(i, c)] += probability * mask(j) * qkv[in(2, j, c)];
          dp.back() += dy[out(i, c)] * qkv[in(2, j, c)] * mask(j);
          dqkv[in(2, j, c)] += probability * mask(j) * dy[out(i, c)];
        }
        weight += probability * dp.back();
      }
      for (std::int64_t j = 0; j < s.seen(i); ++j) {
        const double ds =
            row[static_cast<std::size_t>(j)] * (dp[static_cast<std::size_t>(j)] - weight) * scale;
        for (std::int64_t c = 0; c < s.size; ++c) {
          dqkv[in(0, i, c)] += ds * qkv[in(1, j, c)];
          dqkv[in(1, j, c)] += ds * qkv[in(0, i, c)];
        }
      }
    }
  }
};

template <class T>
struct Fused {
  Operand<T> y, lse, dqkv;

  Fused(const AttentionSizes& s, Operand<T> qkv, Operand<T> dy, const AttentionDropout& dropout,
        int threads, Operand<T> dqkv_start, Write write, Products products = Products::kF32)
      : y({s.n, s.t, s.width()}, std::numeric_limits<T>::quiet_NaN()),
        lse({s.n, s.heads, s.t}, 9),
        dqkv(std::move(dqkv_start)) {
    Context c(threads, attention_scratch_bytes({s.n, s.t, s.width(), s.heads, DTypeOf<T>::value,
                                                threads, Device::Kind::kCpu, products}));
    c.context.products = products;
    attention_forward(c.context, {.qkv = qkv.view(),
                                  .heads = s.heads,
                                  .kv_heads = s.kv_heads,
                                  .causal = s.causal,
                                  .dropout = dropout,
                                  .y = y.view(),
                                  .lse = lse.view()});
    attention_backward(c.context, {.qkv = qkv.view(),
                                   .heads = s.heads,
                                   .kv_heads = s.kv_heads,
                                   .causal = s.causal,
                                   .dropout = dropout,
                                   .y = y.view(),
                                   .lse = lse.view(),
                                   .dy = dy.view(),
                                   .dqkv = dqkv.view(),
                                   .write = write});
    Operand<T> inferred = y;
    attention_forward(c.context, {.qkv = qkv.view(),
                                  .heads = s.heads,
                                  .kv_heads = s.kv_heads,
                                  .causal = s.causal,
                                  .dropout = dropout,
                                  .y = inferred.view()});
    EXPECT_EQ(inferred.values, y.values);
  }
};

Operand<float> random_qkv(const AttentionSizes& s) {
  Operand<float> qkv = random_operand({s.n, s.t, s.stride()}, 1);
  for (float& value : qkv.values) value *= 2;
  return qkv;
}

void compare(const AttentionSizes& s, const AttentionDropout& dropout,
             const std::vector<double>& keep) {
  const Operand<float> qkv = random_qkv(s), dy = random_operand({s.n, s.t, s.width()}, 2);
  const Naive naive(s, gemm_test::widened(qkv), gemm_test::widened(dy), keep);
  for (const Write write : {Write::kOverwrite, Write::kAdd}) {
    const Operand<float> start = output(qkv.shape, write);
    std::vector<double> dqkv = naive.dqkv;
    if (write == Write::kAdd)
      for (std::size_t i = 0; i < dqkv.size(); ++i) dqkv[i] += start.values[i];
    const Fused<double> wide(s, widen(qkv), widen(dy), dropout, 2, widen(start), write);
    EXPECT_EQ(far_apart(wide.y.values, naive.y, 1e-13, 1e-14), "");
    EXPECT_EQ(far_apart(wide.lse.values, naive.lse, 1e-13, 1e-14), "");
    EXPECT_EQ(far_apart(wide.dqkv.values, dqkv, 1e-12, 1e-13), "");
    std::vector<float> first;
    for_each_setting([&](int threads) {
      const Fused<float> run(s, qkv, dy, dropout, threads, start, write);
      EXPECT_EQ(far_apart(run.y.values, naive.y, 1e-5, 5e-6), "");
      EXPECT_EQ(far_apart(run.lse.values, naive.lse, 1e-5, 5e-6), "");
      EXPECT_EQ(far_apart(run.dqkv.values, dqkv, 1e-5, 2e-5), "");
      if (threads == 1) first = run.dqkv.values;
      EXPECT_EQ(run.dqkv.values, first);
    });
  }
}

TEST(CausalAttention, IsTheSoftmaxOverWhatCameBefore) {
  for (const AttentionSizes& s : kAttentionSizes) {
    SCOPED_TRACE(s.text());
    compare(s, {}, {});
  }
}

TEST(SelfAttention, IsTheSoftmaxOverAllPositions) {
  for (const AttentionSizes& s : without_mask(kAttentionSizes)) {
    SCOPED_TRACE(s.text());
    compare(s, {}, {});
  }
}

constexpr AttentionSizes kDroppedSizes[] = {
    {2, 7, 3, 5}, {1, 66, 2, 8}, {1, 131, 1, 16}, {2, 35, 4, 8, 2}};

std::vector<std::int64_t> ids_of(const AttentionSizes& s) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < s.n; ++i) ids.push_back(77 + (std::int64_t{1} << 33) * i);
  return ids;
}

std::vector<double> kept_by(const AttentionSizes& s, const AttentionDropout& dropout) {
  std::vector<double> keep;
  for (std::int64_t row = 0; row < s.n * s.heads * s.t; ++row) {
    const std::int64_t sample = row / (s.heads * s.t), rest = row % (s.heads * s.t);
    for (std::int64_t j = 0; j < s.t; ++j) {
      const std::int64_t low =
          (dropout.sample_ids[static_cast<std::size_t>(sample)] * s.heads * s.t + rest) *
              ((s.t + 3) / 4) +
          j / 4;
      const auto word = philox(dropout.key, dropout.epoch,
                               static_cast<std::uint64_t>(low))[static_cast<std::size_t>(j % 4)];
      keep.push_back(uniform_float(word) >= 0.25 ? 1 / 0.75 : 0.0);
    }
  }
  return keep;
}

TEST(CausalAttention, DropoutIsThatOfPhiloxWhateverTheBlocks) {
  for (const AttentionSizes& s : kDroppedSizes) {
    const std::vector<std::int64_t> ids = ids_of(s);
    const AttentionDropout dropout{0.25, 0xabcdef0123456789, 3, ids};
    compare(s, dropout, kept_by(s, dropout));
  }
}

TEST(SelfAttention, DropoutIsThatOfPhiloxWhateverTheBlocks) {
  for (const AttentionSizes& s : without_mask(kDroppedSizes)) {
    const std::vector<std::int64_t> ids = ids_of(s);
    const AttentionDropout dropout{0.25, 0xabcdef0123456789, 3, ids};
    compare(s, dropout, kept_by(s, dropout));
  }
}

// ---- products in bf16

double mean_distance(const std::vector<float>& found, const std::vector<double>& expected) {
  double sum = 0;
  for (std::size_t i = 0; i < found.size(); ++i) sum += std::fabs(found[i] - expected[i]);
  return found.empty() ? 0 : sum / static_cast<double>(found.size());
}

// Scores are sums over rounded queries and keys, which the log-sum-exps show. Probabilities and
// gradients of scores are rounded, too, before they are multiplied.
void compare_bf16(const AttentionSizes& s, const AttentionDropout& dropout,
                  const std::vector<double>& keep) {
  SCOPED_TRACE(s.text());
  const Operand<float> qkv = random_qkv(s), dy = random_operand({s.n, s.t, s.width()}, 2);
  const Naive naive(s, widen_rounded(qkv).values, widen_rounded(dy).values, keep);
  for (const Write write : {Write::kOverwrite, Write::kAdd}) {
    const Operand<float> start = output(qkv.shape, write);
    std::vector<double> dqkv = naive.dqkv;
    if (write == Write::kAdd)
      for (std::size_t i = 0; i < dqkv.size(); ++i) dqkv[i] += start.values[i];
    const auto run = [&](int threads) {
      return Fused<float>(s, qkv, dy, dropout, threads, start, write, Products::kBF16);
    };
    const Fused<float> one = run(1);
    EXPECT_EQ(far_apart(one.lse.values, naive.lse, 1e-5, 1e-5), "");
    EXPECT_EQ(far_apart(one.y.values, naive.y, 0x1p-7, 1e-2), "");
    EXPECT_EQ(far_apart(one.dqkv.values, dqkv, 0x1p-6, 4e-2), "");
    EXPECT_LT(mean_distance(one.y.values, naive.y), 2e-3);
    EXPECT_LT(mean_distance(one.dqkv.values, dqkv), 4e-3);
    for (const int threads : {2, 3}) {
      const Fused<float> more = run(threads);
      EXPECT_EQ(more.y.values, one.y.values);
      EXPECT_EQ(more.dqkv.values, one.dqkv.values);
    }
  }
}

class CausalAttentionBf16 : public Bf16Test {};

TEST_F(CausalAttentionBf16, IsNearTheSoftmaxOverWhatCameBefore) {
  for (const AttentionSizes& s : kAttentionSizes) compare_bf16(s, {}, {});
}

TEST_F(CausalAttentionBf16, WithoutTheMaskIsNearTheSoftmaxOverAllPositions) {
  for (const AttentionSizes& s : without_mask(kAttentionSizes)) compare_bf16(s, {}, {});
}

TEST_F(CausalAttentionBf16, DropsWhatF32Drops) {
  for (const AttentionSizes& s : kDroppedSizes) {
    const std::vector<std::int64_t> ids = ids_of(s);
    const AttentionDropout dropout{0.25, 0xabcdef0123456789, 3, ids};
    compare_bf16(s, dropout, kept_by(s, dropout));
  }
}

TEST_F(CausalAttentionBf16, NeverLooksAheadAndDoesNotDependOnAlignment) {
  const AttentionSizes s{1, 71, 2, 9};
  Bf16Context c(2, attention_scratch_bytes({s.n, s.t, s.width(), s.heads, DType::kF32, 2,
                                            Device::Kind::kCpu, Products::kBF16}));
  const auto y_of = [&](const Operand<float>& qkv) {
    Operand<float> from = qkv, y({1, s.t, s.width()}, 0);
    attention_forward(c.context, {.qkv = from.view(), .heads = s.heads, .y = y.view()});
    return y.values;
  };
  Operand<float> qkv = random_qkv(s);
  const std::vector<float> before = y_of(qkv);
  Misplaced moved(qkv), y(Operand<float>({1, s.t, s.width()}, 0));
  attention_forward(c.context, {.qkv = moved.view(), .heads = s.heads, .y = y.view()});
  EXPECT_EQ(y.values(), before);
  for (std::size_t i = static_cast<std::size_t>(41 * 3 * s.width()); i < qkv.values.size(); ++i)
    qkv.values[i] += 3;
  const std::vector<float> after = y_of(qkv);
  const std::ptrdiff_t seen = 41 * s.width();
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + seen, after.begin()));
  EXPECT_NE(before[static_cast<std::size_t>(seen)], after[static_cast<std::size_t>(seen)]);
}

TEST(CausalAttention, LargeScoresStayFiniteAndTheLargestWins) {
  const AttentionSizes s{1, 160, 1, 8};
  Operand<float> qkv({1, s.t, 24}, 0);
  for (std::int64_t i = 0; i < s.t; ++i) {
    qkv.values[static_cast<std::size_t>(i * 24)] = 1000;  // q
    qkv.values[static_cast<std::size_t>(i * 24 + 8)] =
        static_cast<float>(i);  // k: the newest has by far the largest score
    qkv.values[static_cast<std::size_t>(i * 24 + 16)] = static_cast<float>(i);  // v
  }
  for_each_setting([&](int threads) {
    const Fused<float> run(s, qkv, Operand<float>({1, s.t, 8}, 1.f), {}, threads,
                           gemm_test::nan_operand(qkv.shape), Write::kOverwrite);
    for (std::int64_t i = 0; i < s.t; ++i)
      EXPECT_EQ(run.y.values[static_cast<std::size_t>(i * 8)], static_cast<float>(i));
    for (const float value : run.dqkv.values) ASSERT_TRUE(std::isfinite(value));
  });
}

TEST(CausalAttention, NeverLooksAhead) {
  const AttentionSizes s{1, 70, 2, 8};
  for_each_setting([&](int threads) {
    Context c(threads,
              attention_scratch_bytes({s.n, s.t, s.width(), s.heads, DType::kF32, threads}));
    Operand<float> qkv = random_qkv(s), before({1, s.t, s.width()}, 0), after = before;
    attention_forward(c.context, {.qkv = qkv.view(), .heads = s.heads, .y = before.view()});
    for (std::size_t i = static_cast<std::size_t>(40 * 3 * s.width()); i < qkv.values.size(); ++i)
      qkv.values[i] += 3;
    attention_forward(c.context, {.qkv = qkv.view(), .heads = s.heads, .y = after.view()});
    for (std::size_t i = 0; i < static_cast<std::size_t>(s.t * s.width()); ++i) {
      if (i < static_cast<std::size_t>(40 * s.width()))
        ASSERT_EQ(after.values[i], before.values[i]) << i;
      else
        ASSERT_NE(after.values[i], before.values[i]) << i;
    }
  });
}

TEST(CausalAttention, MemoryIsLinearInTheContext) {
  const std::size_t once = attention_scratch_bytes({1, 1024, 64, 1, DType::kF32, 1});
  EXPECT_LT(attention_scratch_bytes({1, 8192, 64, 1, DType::kF32, 1}), 8 * once + 1);
  EXPECT_LT(once, 1024 * 1024 * sizeof(float));
}

TEST(CausalAttention, RefusesShapesThatDoNotFit) {
  Context c(1, 1 << 20);
  Operand<float> qkv({1, 4, 24}, 0), y({1, 4, 8}, 0), wrong({1, 4, 9}, 0);
  EXPECT_THROW(attention_forward(c.context, {.qkv = qkv.view(), .heads = 3, .y = y.view()}),
               ShapeError);
  EXPECT_THROW(attention_forward(c.context, {.qkv = qkv.view(), .heads = 2, .y = wrong.view()}),
               ShapeError);
  EXPECT_THROW(attention_forward(
                   c.context, {.qkv = qkv.view(), .heads = 2, .y = y.view(), .lse = wrong.view()}),
               ShapeError);
  EXPECT_VALUES(shape_error([&] {
                  attention_forward(c.context,
                                    {.qkv = qkv.view(), .heads = 3, .kv_heads = 2, .y = y.view()});
                }),
                "attention_forward: 3 heads 2 keys");
  EXPECT_VALUES(shape_error([&] {
                  attention_forward(c.context,
                                    {.qkv = qkv.view(), .heads = 3, .kv_heads = 1, .y = y.view()});
                }),
                "attention_forward [1, 4, 24] [n, t, width] 5");
  EXPECT_THROW(
      attention_forward(c.context,
                        {.qkv = qkv.view(), .heads = 2, .dropout = {1.0, 0, 0, {}}, .y = y.view()}),
      ModelError);
  Context none(1, 0);
  EXPECT_THROW(attention_forward(none.context, {.qkv = qkv.view(), .heads = 2, .y = y.view()}),
               Error);
}

}  // namespace
}  // namespace engine::ops
