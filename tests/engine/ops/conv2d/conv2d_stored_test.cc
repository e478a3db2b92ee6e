// Convolutions of activations stored in bf16: the sums that floats give with products in bf16, or
// by Winograd's method, rounded where stored.
#include <gtest/gtest.h>

#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/conv2d/winograd_rule.h"
#include "tests/engine/ops/common/stored_test_support.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

struct StoredConv {
  std::int64_t n;
  Conv2dGeometry g;
  int threads;
  Write write;
  Convolutions convolutions = Convolutions::kDirect;

  std::size_t scratch(DType dtype) const {
    return conv2d_scratch_bytes(g, n, dtype, threads, Device::Kind::kCpu, Products::kBF16);
  }
  std::string text() const {
    return Shape{n, g.in_h, g.in_w, g.in_channels}.to_string() + " -> " +
           std::to_string(g.out_channels) + " kernel " + std::to_string(g.kernel_h) + " stride " +
           std::to_string(g.stride) + ", " + std::to_string(threads) + " threads" +
           (write == Write::kAdd ? ", add" : "");
  }

  // y, dx; then the gradients of parameters, which are f32.
  template <class T>
  std::vector<std::vector<float>> operator()(T) const {
    const Shape in{n, g.in_h, g.in_w, g.in_channels}, out{n, g.out_h(), g.out_w(), g.out_channels},
        taps{g.kernel_h, g.kernel_w, g.in_channels, g.out_channels};
    auto x = stored_operand<T>(in, 1), dy = stored_operand<T>(out, 2),
         y = stored_output<T>(out, Write::kOverwrite), dx = stored_output<T>(in, write);
    auto weight = random_operand(taps, 3), bias = random_operand({g.out_channels}, 4),
         dweight = output(taps, write), dbias = output({g.out_channels}, write);
    Bf16Context c(threads, scratch(DTypeOf<T>::value));
    c.context.convolutions = convolutions;
    conv2d_forward(c.context, {.geometry = g,
                               .x = x.view(),
                               .weight = weight.view(),
                               .y = y.view(),
                               .bias = bias.view()});
    conv2d_backward_data(
        c.context,
        {.geometry = g, .dy = dy.view(), .weight = weight.view(), .dx = dx.view(), .write = write});
    conv2d_backward_weights(c.context, {.geometry = g,
                                        .x = x.view(),
                                        .dy = dy.view(),
                                        .dweight = dweight.view(),
                                        .dbias = dbias.view(),
                                        .write = write});
    return {floats_of(y), floats_of(dx), dweight.values, dbias.values};
  }
};

struct NamedConv {
  std::int64_t n;
  Conv2dGeometry g;
};

// One, three, odd and even channels, in place and with a rim, several chunks of steps, strides
// whose classes have no taps, odd and even batches.
const NamedConv kStoredConvs[] = {
    {0, {5, 5, 2, 3, 3, 3, 1, 1}},     {1, {5, 5, 1, 1, 1, 1, 1, 0}},
    {3, {7, 6, 1, 16, 5, 5, 1, 2}},    {2, {8, 9, 3, 10, 3, 3, 1, 1}},
    {2, {8, 9, 6, 10, 3, 3, 1, 1}},    {5, {6, 6, 2, 33, 3, 3, 2, 1}},
    {4, {9, 7, 5, 32, 3, 2, 1, 0}},    {3, {10, 10, 17, 7, 1, 1, 2, 0}},
    {3, {10, 10, 18, 40, 1, 1, 2, 0}}, {2, {4, 5, 700, 33, 1, 1, 1, 0}},
    {1, {4, 4, 140, 33, 3, 3, 1, 1}},  {7, {5, 4, 6, 261, 3, 3, 3, 1}},
    {9, {3, 3, 8, 20, 2, 2, 4, 1}},    {2, {20, 20, 9, 31, 3, 3, 1, 1}}};

class Conv2dStored : public Bf16Test {};

TEST_F(Conv2dStored, IsThatOfFloatsRounded) {
  for (const NamedConv& c : kStoredConvs)
    for (int threads = 1; threads <= 3; ++threads)
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        const StoredConv conv{c.n, c.g, threads, write};
        SCOPED_TRACE(conv.text());
        expect_same_rounded(conv, 2, 1e-4);
      }
}

TEST_F(Conv2dStored, WinogradsIsThatOfFloatsRounded) {
  const NamedConv cases[] = {{3, {16, 17, 64, 70, 3, 3, 1, 1}}, {2, {30, 9, 96, 65, 3, 3, 1, 0}}};
  for (const NamedConv& c : cases)
    for (int threads = 1; threads <= 3; ++threads)
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        ASSERT_TRUE(weights_suit_winograd(c.g, c.n, true));
        const StoredConv conv{c.n, c.g, threads, write, Convolutions::kAuto};
        SCOPED_TRACE(conv.text());
        expect_same_rounded(conv, 2, 1e-4);
      }
}

TEST_F(Conv2dStored, ThreadsDoNotChangeTheBitsOfActivations) {
  for (const NamedConv& c : kStoredConvs) {
    const auto one = StoredConv{c.n, c.g, 1, Write::kAdd}(bf16{});
    for (const int threads : {2, 5}) {
      const auto more = StoredConv{c.n, c.g, threads, Write::kAdd}(bf16{});
      EXPECT_EQ(more[0], one[0]);
      EXPECT_EQ(more[1], one[1]);
    }
  }
}

TEST_F(Conv2dStored, ScratchOfALargerBatchServesASmallerOne) {
  for (const NamedConv& c : kStoredConvs)
    for (const int threads : {1, 2, 5}) {
      std::size_t before = 0;
      for (std::int64_t n = 0; n < 70; ++n) {
        const StoredConv conv{n, c.g, threads, Write::kAdd};
        EXPECT_GE(conv.scratch(DType::kBF16), before) << conv.text();
        before = conv.scratch(DType::kBF16);
      }
    }
}

}  // namespace
}  // namespace engine::ops
