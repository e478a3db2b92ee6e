// Attention of the next positions of texts: against the attention of whole samples, in pieces, with
// several texts, and what is rejected.
#include "engine/ops/extension/attention_extend.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/ops/attention/attention.h"
#include "tests/engine/ops/common/kernel_test_support.h"
#include "tests/support/expect_contains.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

struct TextSizes {
  std::int64_t t, heads, size, kv_heads = heads;
  std::int64_t width() const { return heads * size; }
  std::int64_t row() const { return (heads + 2 * kv_heads) * size; }
};
constexpr TextSizes kTextSizes[] = {{1, 1, 1},    {7, 3, 5},    {33, 2, 17},
                                    {64, 4, 32},  {65, 1, 40},  {130, 2, 64},
                                    {300, 1, 24}, {9, 6, 5, 2}, {70, 4, 16, 1}};

// The texts of a call, with what is kept of them.
template <class T>
struct Texts {
  const TextSizes& s;
  std::int64_t count, capacity;
  Operand<T> kept;

  Texts(const TextSizes& sizes, std::int64_t texts, std::int64_t positions)
      : s(sizes),
        count(texts),
        capacity(positions),
        kept({texts, 2 * s.kv_heads, positions, s.size}, T{-7}) {}

  // Extends text `first` and the ones after it by the rows of `qkv` [n, t, row]; returns y.
  std::vector<T> extend(Context& c, std::int64_t first, const std::vector<std::int64_t>& earlier,
                        Operand<T> qkv) {
    const std::int64_t n = qkv.shape[0], t = qkv.shape[1];
    Operand<T> y({n, t, s.width()}, T{-7});
    TensorView part = kept.view();
    part.data = kept.values.data() + first * (kept.values.size() / count);
    part.shape[0] = n;
    causal_attention_extend(c.context, {.qkv = qkv.view(),
                                        .heads = s.heads,
                                        .kv_heads = s.kv_heads,
                                        .earlier = earlier,
                                        .kept = part,
                                        .y = y.view()});
    return y.values;
  }
};

// Rows [first, last) of a text's [t, width of a row].
template <class T>
Operand<T> rows(const Operand<T>& text, std::int64_t first, std::int64_t last) {
  const std::int64_t width = text.shape[2];
  Operand<T> part({1, last - first, width}, T{0});
  std::copy_n(text.values.begin() + first * width, (last - first) * width, part.values.begin());
  return part;
}

template <class T>
std::vector<T> in_pieces(Context& c, const TextSizes& s, const Operand<T>& qkv,
                         std::int64_t piece) {
  Texts<T> texts(s, 1, s.t + 2);
  std::vector<T> all;
  for (std::int64_t at = 0; at < s.t; at += piece) {
    const std::vector<T> y = texts.extend(c, 0, {at}, rows(qkv, at, std::min(at + piece, s.t)));
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

TEST(AttentionExtend, IsTheAttentionOfTheWholeText) {
  for_each_setting([](int threads) {
    for (const TextSizes& s : kTextSizes) {
      SCOPED_TRACE(s.t);
      Context c(threads, 0);
      const Operand<float> qkv = random_operand({1, s.t, s.row()}, 5);
      Operand<double> wide = widen(qkv), expected({1, s.t, s.width()}, 0);
      attention_forward(
          c.context,
          {.qkv = wide.view(), .heads = s.heads, .kv_heads = s.kv_heads, .y = expected.view()});
      for (const std::int64_t piece : {std::int64_t{1}, std::int64_t{5}, s.t}) {
        EXPECT_EQ(far_apart(in_pieces(c, s, qkv, piece), expected.values, 2e-6, 2e-6), "");
        EXPECT_EQ(far_apart(in_pieces(c, s, widen(qkv), piece), expected.values, 1e-14, 1e-14), "");
      }
    }
  });
}

TEST(AttentionExtend, HasTheSameBitsInPiecesAndForAnyNumberOfThreads) {
  for (const TextSizes& s : kTextSizes) {
    Context one(1, 0), three(3, 0);
    const Operand<float> qkv = random_operand({1, s.t, s.row()}, 6);
    const std::vector<float> whole = in_pieces(one, s, qkv, s.t);
    for (const std::int64_t piece : {1, 3}) {
      EXPECT_EQ(in_pieces(one, s, qkv, piece), whole) << s.t;
      EXPECT_EQ(in_pieces(three, s, qkv, piece), whole) << s.t;
    }
  }
}

TEST(AttentionExtend, TextsOfOneCallAreIndependent) {
  constexpr TextSizes s{1, 2, 8};
  Context c(2, 0);
  const Operand<float> first = random_operand({1, 9, s.row()}, 7),
                       second = random_operand({1, 4, s.row()}, 8);
  Texts<float> texts(s, 3, 9);  // the first one stays unused
  texts.extend(c, 1, {0}, rows(first, 0, 8));
  texts.extend(c, 2, {0}, rows(second, 0, 3));
  Operand<float> last({2, 1, s.row()}, 0);
  const Operand<float> ends[] = {rows(first, 8, 9), rows(second, 3, 4)};
  for (std::size_t i = 0; i < 2; ++i)
    std::ranges::copy(ends[i].values, last.values.begin() + static_cast<std::ptrdiff_t>(i) * 48);
  const std::vector<float> found = texts.extend(c, 1, {8, 3}, last);
  const std::vector<float> of_first = in_pieces(c, {9, 2, 8}, first, 9),
                           of_second = in_pieces(c, {4, 2, 8}, second, 4);
  EXPECT_TRUE(std::equal(found.begin(), found.begin() + 16, of_first.end() - 16));
  EXPECT_TRUE(std::equal(found.begin() + 16, found.end(), of_second.end() - 16));
  const auto unused = texts.kept.values.begin() + texts.kept.shape.count() / 3;
  EXPECT_TRUE(std::all_of(texts.kept.values.begin(), unused, [](float v) { return v == -7; }));
}

TEST(AttentionExtend, RejectsMoreThanTheCapacityAndOtherShapes) {
  Context c(1, 0);
  Operand<float> qkv({1, 2, 12}, 1), y({1, 2, 4}, 0), kept({1, 4, 5, 2}, 0), few({1, 2, 5, 2}, 0);
  const auto extend = [&](const std::vector<std::int64_t>& earlier, Operand<float>& memory) {
    causal_attention_extend(
        c.context,
        {.qkv = qkv.view(), .heads = 2, .earlier = earlier, .kept = memory.view(), .y = y.view()});
  };
  extend({3}, kept);
  EXPECT_VALUES(shape_error([&] { extend({4}, kept); }),
                "causal_attention_extend: 2 positions 4, 5");
  EXPECT_THROW(extend({-1}, kept), ShapeError);
  EXPECT_THROW(extend({0}, few), ShapeError);
}

}  // namespace
}  // namespace engine::ops
