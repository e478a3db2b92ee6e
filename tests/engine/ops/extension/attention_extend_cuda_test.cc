// Attention of the next positions of texts on a CUDA device: against the float64 reference on the
// CPU, for texts of different lengths, every storage, and what is rejected.
#include "engine/ops/extension/attention_extend.h"

#include <algorithm>

#include "tests/engine/ops/device/cuda_test_support.h"
#include "tests/support/expect_contains.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

// A call: `t` positions of each text, after `earlier` ones.
struct ExtendCase {
  std::int64_t heads, kv_heads, size, t;
  std::vector<std::int64_t> earlier;

  std::int64_t texts() const { return std::ssize(earlier); }
  std::int64_t capacity() const { return std::ranges::max(earlier) + t + 3; }
  Shape qkv() const { return {texts(), t, (heads + 2 * kv_heads) * size}; }
  Shape kept() const { return {texts(), 2 * kv_heads, capacity(), size}; }
  Shape y() const { return {texts(), t, heads * size}; }
  std::string text() const {
    return Shape{heads, kv_heads, size, t}.to_string() + " after " + std::to_string(earlier[0]);
  }
};

std::vector<ExtendCase> extend_cases() {
  return {{1, 1, 8, 1, {0}},       {2, 2, 8, 1, {5, 0, 40, 1}}, {4, 2, 17, 3, {7, 31, 0}},
          {3, 1, 64, 1, {33, 64}}, {2, 1, 64, 5, {0, 0}},  // texts that begin
          {2, 2, 100, 2, {9}},     {4, 2, 256, 2, {3, 70}},     {1, 1, 1, 4, {2}}};
}

// Calls causal_attention_extend() with three operands, in memory of the context's device.
template <class Qkv, class Kept, class Y>
void extend_texts(KernelContext& context, const ExtendCase& s, const Qkv& qkv, const Kept& kept,
                  const Y& y) {
  causal_attention_extend(context, {.qkv = qkv,
                                    .heads = s.heads,
                                    .kv_heads = s.kv_heads,
                                    .earlier = s.earlier,
                                    .kept = kept,
                                    .y = y});
}

template <class T>
void compare_extension(const ExtendCase& s) {
  SCOPED_TRACE(s.text());
  const Operand<float> qkv = random_operand(s.qkv(), 1), before = random_operand(s.kept(), 2);
  Operand<double> wide_qkv = kept<T>(qkv), expected_kept = kept<T>(before), expected(s.y(), 0);
  Context host(1, 0);
  extend_texts(host.context, s, wide_qkv.view(), expected_kept.view(), expected.view());

  DeviceContext c;
  const auto device_qkv = to_device<T>(s.qkv(), qkv.values),
             device_kept = to_device<T>(s.kept(), before.values),
             y = to_device<T>(s.y(), std::vector<float>(expected.values.size(), NAN));
  extend_texts(c.context, s, device_qkv.view(), device_kept.view(), y.view());
  c.finish();
  EXPECT_LE(relative_error(as_floats(y.values()), expected.values), storage_error<T>());
  // Rows that the call does not have keep their numbers.
  EXPECT_EQ(far_apart(as_floats(device_kept.values()), expected_kept.values, 0, 0), "");
}

template <class T>
class AttentionExtendCuda : public CudaTest {};
TYPED_TEST_SUITE(AttentionExtendCuda, Storages);

TYPED_TEST(AttentionExtendCuda, AgreesWithTheReference) {
  for (const ExtendCase& s : extend_cases()) compare_extension<TypeParam>(s);
}

class AttentionExtendDevice : public CudaTest {};

TEST_F(AttentionExtendDevice, MoreTextsThanALaunchHas) {
  ExtendCase s{2, 1, 4, 1, {}};
  for (std::int64_t i = 0; i < 70; ++i) s.earlier.push_back(i % 9);
  compare_extension<float>(s);
}

TEST_F(AttentionExtendDevice, NoTextsAndNoPositionsAreNoWork) {
  DeviceContext c;
  const auto qkv = to_device<float>({0, 1, 12}, {}), kept = to_device<float>({0, 4, 5, 2}, {}),
             y = to_device<float>({0, 1, 4}, {});
  const engine::cuda::LaunchRecord record;
  causal_attention_extend(c.context,
                          {.qkv = qkv.view(), .heads = 2, .kept = kept.view(), .y = y.view()});
  EXPECT_TRUE(record.launches().empty());
}

// The logits of a text do not depend on the pieces in which it is computed.
TEST_F(AttentionExtendDevice, PiecesOfATextAreTheWholeText) {
  constexpr std::int64_t kAll = 45, kWidth = 2 * 24;
  const Operand<float> qkv = random_operand({1, kAll, 4 * 24}, 4);
  const auto in_pieces = [&](std::int64_t piece) {
    DeviceContext c;
    const auto kept = to_device<float>({1, 2, kAll, 24}, std::vector<float>(2 * kAll * 24, NAN));
    std::vector<float> all;
    for (std::int64_t at = 0; at < kAll; at += piece) {
      const std::int64_t t = std::min(piece, kAll - at);
      const auto part = to_device<float>(
          {1, t, 96}, {qkv.values.begin() + at * 96, qkv.values.begin() + (at + t) * 96});
      const auto y =
          to_device<float>({1, t, kWidth}, std::vector<float>(std::size_t(t * kWidth), NAN));
      causal_attention_extend(c.context, {.qkv = part.view(),
                                          .heads = 2,
                                          .kv_heads = 1,
                                          .earlier = {&at, 1},
                                          .kept = kept.view(),
                                          .y = y.view()});
      c.finish();
      const std::vector<float> found = y.values();
      all.insert(all.end(), found.begin(), found.end());
    }
    return all;
  };
  const std::vector<float> whole = in_pieces(kAll), each = in_pieces(1);
  EXPECT_EQ(far_apart(each, whole, 1e-5, 1e-5), "");
  const std::vector<float> sevens = in_pieces(7);
  // The first piece is computed as a whole text is; the later ones have the same bits as one by
  // one.
  EXPECT_TRUE(std::equal(each.begin() + 7 * kWidth, each.end(), sevens.begin() + 7 * kWidth));
}

TEST_F(AttentionExtendDevice, RejectsMoreThanTheCapacityAndLargeHeads) {
  DeviceContext c;
  const auto call = [&](std::int64_t size, std::int64_t earlier) {
    const auto zeros = [](const Shape& shape) {
      return to_device<float>(shape, std::vector<float>(std::size_t(shape.count()), 0));
    };
    const auto qkv = zeros({1, 2, 3 * size}), kept = zeros({1, 2, 5, size}),
               y = zeros({1, 2, size});
    return shape_error([&] {
      causal_attention_extend(c.context, {.qkv = qkv.view(),
                                          .heads = 1,
                                          .earlier = {&earlier, 1},
                                          .kept = kept.view(),
                                          .y = y.view()});
    });
  };
  EXPECT_EQ(call(4, 3), "nothing thrown");
  EXPECT_VALUES(call(4, 4), "causal_attention_extend 2 4 5");
  EXPECT_EQ(call(257, 0),
            "causal_attention_extend: heads of 257, expected at most 256 on a CUDA device: take "
            "more heads");
  c.finish();
}

}  // namespace
}  // namespace engine::ops
