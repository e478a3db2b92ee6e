// The rotary position embedding: the numbers of its definition, what it keeps, and the fast kernels
// against the float64 loops at odd sizes.
#include <gtest/gtest.h>

#include "tests/engine/ops/rotary/rotary_cases.h"
#include "tests/support/expect_contains.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

Context context_for(const RotarySetting& s, int threads = 1) {
  return {threads, rotary_scratch_bytes(s.shape[1], s.size, Device::Kind::kCpu)};
}

std::vector<double> turned(const RotarySetting& s, const std::vector<double>& x) {
  Operand<double> from = operand_of(s.shape, x), to(s.shape, NAN);
  Context c = context_for(s);
  rotary(c.context, s.call(from.view(), to.view(), false, Write::kOverwrite));
  return to.values;
}

const std::vector<double> kHead{0.5, -1.25, 2, 0.75, -0.375, 3};

// x * cos + rotate_half(x) * sin of transformers' LlamaModel, made with 40 decimal digits.
TEST(Rotary, IsLlamas) {
  EXPECT_EQ(
      far_apart(turned({{1, 1, 6}, 1, 6, {7}}, kHead),
                std::vector<double>{-0.1157888218674395, -1.064889595322563, 1.9545311529476128,
                                    0.8939199901168731, -0.7544104650478729, 3.0298197920267924},
                1e-14, 1e-14),
      "");
  EXPECT_EQ(
      far_apart(turned({{1, 1, 6}, 1, 6, {100003}}, kHead),
                std::vector<double>{0.6244730502676089, -0.40604969009243613, -3.402542974282206,
                                    0.6500256990992498, 1.2402615245083741, 1.1927704339741159},
                1e-10, 1e-10),
      "");
}

// The three pairs keep their frequency, get one between, and an eighth of it.
TEST(Rotary, LengthensTheContextAsLlama3) {
  const RotaryFrequencies scaled{100, 8, 1, 4, 40};
  const RotaryTurns turns = rotary_turns(scaled, 6);
  EXPECT_EQ(far_apart(std::vector<double>{turns.at[0], turns.at[1], turns.at[2], turns.at[3]},
                      std::vector<double>{0.15915494309189535, 0.008002013334458396,
                                          0.0009234147583370234, 0},
                      1e-14, 0),
            "");
  EXPECT_EQ(
      far_apart(turned({{1, 1, 6}, 1, 6, {11}, scaled}, kHead),
                std::vector<double>{0.752205503907053, -0.8666668524511313, 1.804592568938156,
                                    -0.4966758297843136, -0.9757118257264534, 3.1214492884128657},
                1e-14, 1e-14),
      "");
}

// Products of queries and keys depend on the distance of their positions alone.
TEST(Rotary, ProductsDependOnTheDistanceAlone) {
  const std::vector<double> key{1, 0.5, -2, 0.25, 3, -1};
  const auto product = [&](std::int64_t query_at, std::int64_t key_at) {
    const std::vector<double> q = turned({{1, 1, 6}, 1, 6, {query_at}}, kHead),
                              k = turned({{1, 1, 6}, 1, 6, {key_at}}, key);
    double sum = 0;
    for (std::size_t i = 0; i < q.size(); ++i) sum += q[i] * k[i];
    return sum;
  };
  EXPECT_NEAR(product(3, 1), product(1002, 1000), 1e-11);
  EXPECT_GT(std::fabs(product(3, 1) - product(3, 2)), 0.1);
}

TEST(Rotary, Float32AgreesWithFloat64AndIsUndone) {
  for_each_setting([](int threads) {
    for (const RotarySetting& s : kRotaries)
      for (const bool back : {false, true})
        for (const Write write : {Write::kOverwrite, Write::kAdd}) {
          SCOPED_TRACE(s.text());
          Operand<float> x = random_operand(s.shape, 1), y = output(s.shape, write);
          Operand<double> wide_x = widen(x), wide_y = widen(y);
          Context c = context_for(s, threads);
          rotary(c.context, s.call(x.view(), y.view(), back, write));
          rotary(c.context, s.call(wide_x.view(), wide_y.view(), back, write));
          EXPECT_EQ(far_apart(y.values, wide_y.values, 1e-6, 5e-7), "");
          if (write == Write::kAdd) continue;
          Operand<float> place = x;
          rotary(c.context, s.call(place.view(), place.view(), back, write));
          EXPECT_EQ(place.values, y.values);
          rotary(c.context, s.call(place.view(), place.view(), !back, write));
          EXPECT_EQ(far_apart(place.values, x.values, 1e-6, 5e-7), "");
        }
  });
}

TEST(Rotary, RefusesShapesThatDoNotFit) {
  Context c(1, 1 << 12);
  Operand<float> x({1, 2, 24}, 0), y({1, 2, 24}, 0);
  const auto error = [&](std::int64_t heads, std::int64_t size) {
    return shape_error(
        [&] { rotary(c.context, {.x = x.view(), .heads = heads, .size = size, .y = y.view()}); });
  };
  EXPECT_VALUES(error(1, 7), "rotary: heads 7, even 256");
  EXPECT_VALUES(error(1, 258), "rotary: heads 258, even 256");
  EXPECT_VALUES(error(4, 8), "rotary [1, 2, 24] [n, t, 32 or more]");
  EXPECT_EQ(error(3, 8), "nothing thrown");
  const std::vector<std::int64_t> two{0, 1};
  EXPECT_VALUES(
      shape_error([&] {
        rotary(c.context,
               {.x = x.view(), .heads = 3, .size = 8, .y = y.view(), .first_positions = two});
      }),
      "rotary: 2 positions 1");
  Context none(1, 0);
  EXPECT_THROW(rotary(none.context, {.x = x.view(), .heads = 1, .size = 8, .y = y.view()}), Error);
}

}  // namespace
}  // namespace engine::ops
