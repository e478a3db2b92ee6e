// Elementwise kernels on activations stored in bf16: the numbers of f32, rounded where stored.
#include <gtest/gtest.h>

#include "engine/ops/elementwise/elementwise.h"
#include "tests/engine/ops/common/stored_test_support.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

struct FlatCase {
  std::int64_t pixels, channels;
  int threads;
  Write write;

  template <class T>
  std::vector<std::vector<float>> operator()(T) const {
    const Shape shape{2, pixels, 1, channels}, flat{2, pixels * channels};
    auto a = stored_operand<T>(shape, 1), b = stored_operand<T>(shape, 2),
         y = stored_output<T>(shape, Write::kOverwrite), sum = y, sum_relu = y,
         dx = stored_output<T>(shape, write), copy = dx, dropped = dx, back = dx,
         vector = stored_output<T>(flat, write);
    const std::vector<std::int64_t> ids{3, 8};
    Context c(threads, 0);
    KernelContext& context = c.context;
    relu_forward(context, a.view(), y.view());
    relu_backward(context, b.view(), a.view(), dx.view(), write);
    add_forward(context, a.view(), b.view(), false, sum.view());
    add_forward(context, a.view(), b.view(), true, sum_relu.view());
    copy_or_add(context, a.view(), copy.view(), write);
    dropout(context, {.from = a.view(),
                      .rate = 0.3,
                      .key = 5,
                      .epoch = 2,
                      .sample_ids = ids,
                      .to = dropped.view(),
                      .write = write});
    nhwc_to_channel_first(context, a.view(), vector.view(), write);
    auto given = stored_operand<T>(flat, 9);
    channel_first_to_nhwc(context, given.view(), back.view(), write);
    return {floats_of(y),    floats_of(dx),      floats_of(sum),    floats_of(sum_relu),
            floats_of(copy), floats_of(dropped), floats_of(vector), floats_of(back)};
  }
};

class ElementwiseStored : public Bf16Test {};

TEST_F(ElementwiseStored, IsThatOfFloatsRounded) {
  for (const std::int64_t channels : kStoredChannels)
    for (const std::int64_t pixels : {1, 4, 30, 131})
      for (int threads = 1; threads <= 2; ++threads)
        for (const Write write : {Write::kOverwrite, Write::kAdd}) {
          SCOPED_TRACE(std::to_string(pixels) + " x " + std::to_string(channels) +
                       (write == Write::kAdd ? ", add" : ""));
          expect_same_rounded(FlatCase{pixels, channels, threads, write}, 8);
        }
}

// To the nearest, ties to even, as base::from_float; and back without a change.
TEST_F(ElementwiseStored, CastsRoundToTheNearest) {
  Operand<float> from = random_operand({5, 33}, 1), back = gemm_test::nan_operand({5, 33});
  from.values[0] = 1 + 0x1p-8f, from.values[1] = 1 + 3 * 0x1p-8f, from.values[2] = -0.f;
  from.values[3] = std::numeric_limits<float>::infinity();
  Operand<bf16> halves({5, 33}, bf16{});
  Context c(1, 0);
  cast(c.context, from.view(), halves.view());
  cast(c.context, halves.view(), back.view());
  EXPECT_EQ(back.values, rounded(from).values);
  EXPECT_EQ(back.values[0], 1.f);
  EXPECT_EQ(back.values[1], 1 + 0x1p-6f);
}

}  // namespace
}  // namespace engine::ops
