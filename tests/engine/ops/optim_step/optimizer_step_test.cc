// Optimizer steps: PyTorch's numbers in float64, float32 against float64, the same bits everywhere.
#include "engine/ops/optim_step/optimizer_step.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "tests/engine/ops/common/kernel_test_support.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

// Three steps from w = [0.5, -1.25, 2, 0.001] with the gradients [0.1, -0.2, 0.3, 0.0001] * t -
// 0.05.
template <class Step>
std::vector<double> three_steps(Step step) {
  Operand<double> w = operand_of<double>({4}, {0.5, -1.25, 2, 1e-3}), a({4}, 0), b({4}, 0),
                  g({4}, 0);
  Context c(1, 0);
  for (int t = 1; t <= 3; ++t) {
    const double base[] = {0.1, -0.2, 0.3, 1e-4};
    for (std::size_t i = 0; i < 4; ++i) g.values[i] = base[i] * t - 0.05;
    step(c.context, t, g.view(), a.view(), b.view(), w.view());
  }
  return w.values;
}

std::vector<double> three_sgd_steps(SgdStep step) {
  return three_steps(
      [&](KernelContext& context, int t, TensorView g, TensorView v, TensorView, TensorView w) {
        step.first = t == 1;
        sgd_step(context, step, g, step.momentum != 0 ? v : TensorView{}, w);
      });
}

std::vector<double> three_adamw_steps(AdamwStep step) {
  return three_steps(
      [&](KernelContext& context, int t, TensorView g, TensorView m, TensorView v, TensorView w) {
        step.count = t;
        adamw_step(context, step, g, m, v, w);
      });
}

// torch.optim.SGD(lr=0.1[, momentum=0.9, weight_decay=0.01[, nesterov=True]]) and
// AdamW(lr=0.01, betas=(b1, 0.99), eps=1e-8, weight_decay=0.1), torch 2, float64, on those
// gradients.
TEST(OptimizerStep, IsPyTorchs) {
  const double near = 1e-15;
  EXPECT_EQ(far_apart(three_sgd_steps({.lr = 0.1}),
                      std::vector<double>{0.45499999999999996, -1.1150000000000002,
                                          1.8350000000000002, 0.01594},
                      near, near),
            "");
  EXPECT_EQ(far_apart(three_sgd_steps({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01}),
                      std::vector<double>{0.4301813945, -1.0248834737499999, 1.7316895730000001,
                                          0.028925357789000003},
                      near, near),
            "");
  EXPECT_EQ(far_apart(three_sgd_steps(
                          {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}),
                      std::vector<double>{0.3907430562755, -0.9089508549512498, 1.587860630807,
                                          0.041022044307551006},
                      near, near),
            "");
  EXPECT_EQ(
      far_apart(three_adamw_steps({.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1}),
                std::vector<double>{0.47020730967110924, -1.2168688947934492, 1.9650476234494014,
                                    0.03096523817982052},
                near, near),
      "");
  EXPECT_EQ(
      far_apart(three_adamw_steps({.lr = 0.01, .beta1 = 0.4, .beta2 = 0.99, .weight_decay = 0.1}),
                std::vector<double>{0.465798127578279, -1.2138869326719666, 1.9614045264364082,
                                    0.030952066476275623},
                near, near),
      "");
}

// A plain loop, with the operations of torch.lerp.
TEST(OptimizerStep, AnAverageIsAPlainLoops) {
  for_each_setting([](int threads) {
    for (const std::int64_t count : {0, 1, 7, 16, 33, 4097})
      for (const double weight : {0.001, 0.25, 0.5, 0.75, 1.0}) {
        Operand<float> value = random_operand({count}, 1), average = random_operand({count}, 2);
        std::vector<float> expected = average.values;
        const auto w = static_cast<float>(weight), rest = static_cast<float>(1 - weight);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          // In memory, so that nothing is fused.
          volatile float away = value.values[i] - expected[i];
          volatile float share = weight < 0.5 ? w * away : away * rest;
          expected[i] = weight < 0.5 ? expected[i] + share : value.values[i] - share;
        }
        Context c(threads, 0);
        const auto average_with = [&](const AverageStep& step) {
          update(c.context,
                 {.step = step, .gradient = value.view(), .states = {}, .value = average.view()});
        };
        average_with({.weight = weight});
        EXPECT_EQ(average.values, expected) << count << " at " << weight;
        average_with({.weight = weight, .first = true});
        EXPECT_EQ(average.values, value.values);
      }
  });
}

// Chen et al.'s sign of nothing is nothing, and one that is not a number is not hidden.
TEST(OptimizerStep, LionsSignKeepsZerosAndNan) {
  for_each_setting([](int threads) {
    Operand<float> g = operand_of<float>({4}, {0, -2, 3, std::nanf("")}), m({4}, 0), w({4}, 1);
    Context c(threads, 0);
    const TensorView states[] = {m.view()};
    update(
        c.context,
        {.step = LionStep{.lr = 0.25}, .gradient = g.view(), .states = states, .value = w.view()});
    EXPECT_EQ(w.values[0], 1);
    EXPECT_EQ(w.values[1], 1.25f);
    EXPECT_EQ(w.values[2], 0.75f);
    EXPECT_TRUE(std::isnan(w.values[3]));
  });
}

struct State {
  Operand<float> gradient, a, b, value;

  explicit State(std::int64_t count)
      : gradient(random_operand({count}, 1)),
        a(random_operand({count}, 2)),
        b(random_operand({count}, 3)),
        value(random_operand({count}, 4)) {
    for (float& square : b.values) square = square * square;
  }
};

using FloatStep =
    std::function<void(KernelContext&, TensorView g, TensorView a, TensorView b, TensorView w)>;

std::vector<FloatStep> all_steps() {
  std::vector<FloatStep> steps;
  for (int options = 0; options < 16; ++options) {
    const SgdStep s{.lr = 0.1,
                    .momentum = options & 1 ? 0.9 : 0.0,
                    .weight_decay = options & 2 ? 0.01 : 0.0,
                    .gradient_scale = 0.7,
                    .nesterov = (options & 4) != 0,
                    .first = (options & 8) != 0};
    if (s.momentum == 0 && (s.nesterov || s.first)) continue;
    steps.push_back(
        [s](KernelContext& context, TensorView g, TensorView a, TensorView, TensorView w) {
          sgd_step(context, s, g, s.momentum != 0 ? a : TensorView{}, w);
        });
  }
  const LionStep lion{.lr = 0.01, .weight_decay = 0.1, .gradient_scale = 0.7};
  const MuonMomentumStep momentum{.gradient_scale = 0.7};
  for (const UpdateStep& s : {UpdateStep{lion}, UpdateStep{momentum}})
    steps.push_back(
        [s](KernelContext& context, TensorView g, TensorView a, TensorView, TensorView w) {
          update(context, {.step = s, .gradient = g, .states = std::span(&a, 1), .value = w});
        });
  steps.push_back([](KernelContext& context, TensorView g, TensorView, TensorView, TensorView w) {
    const MuonApplyStep s{.lr = 0.1, .weight_decay = 0.1, .factor = 1.5};
    update(context, {.step = s, .gradient = g, .states = {}, .value = w});
  });
  for (const AverageStep average : {AverageStep{.weight = 0.1}, AverageStep{.weight = 0.7},
                                    AverageStep{.weight = 0.1, .first = true}})
    steps.push_back(
        [average](KernelContext& context, TensorView g, TensorView, TensorView, TensorView w) {
          update(context, {.step = average, .gradient = g, .states = {}, .value = w});
        });
  for (const double beta1 : {0.9, 0.4}) {
    const AdamwStep s{.lr = 0.01,
                      .beta1 = beta1,
                      .beta2 = 0.99,
                      .weight_decay = 0.1,
                      .gradient_scale = 1.3,
                      .count = 5};
    steps.push_back([s](KernelContext& context, TensorView g, TensorView a, TensorView b,
                        TensorView w) { adamw_step(context, s, g, a, b, w); });
  }
  return steps;
}

TEST(OptimizerStep, Float32AgreesWithFloat64) {
  for_each_setting([](int threads) {
    for (const std::int64_t count : {0, 1, 7, 16, 33, 4097, 20'001}) {
      for (const FloatStep& step : all_steps()) {
        State s(count);
        Operand<double> g = widen(s.gradient), a = widen(s.a), b = widen(s.b), w = widen(s.value);
        Context c(threads, 0);
        step(c.context, s.gradient.view(), s.a.view(), s.b.view(), s.value.view());
        step(c.context, g.view(), a.view(), b.view(), w.view());
        EXPECT_EQ(far_apart(s.value.values, w.values, 2e-6, 1e-6), "");
        EXPECT_EQ(far_apart(s.a.values, a.values, 1e-6, 1e-6), "");
        EXPECT_EQ(far_apart(s.b.values, b.values, 1e-6, 1e-6), "");
      }
    }
  });
}

// Replicas on machines with unlike processors and thread counts must stay equal to the last bit.
TEST(OptimizerStep, TheSameBitsOnEveryInstructionSetAndThreadCount) {
  for (const FloatStep& step : all_steps()) {
    std::vector<float> expected;
    for_each_setting([&](int threads) {
      State s(10'007);
      Context c(threads, 0);
      step(c.context, s.gradient.view(), s.a.view(), s.b.view(), s.value.view());
      if (expected.empty()) expected = s.value.values;
      EXPECT_EQ(
          std::memcmp(expected.data(), s.value.values.data(), expected.size() * sizeof(float)), 0);
    });
  }
}

TEST(OptimizerStep, GapsOfZerosStayZero) {
  for (const FloatStep& step : all_steps()) {
    State s(20);
    for (Operand<float>* operand : {&s.gradient, &s.a, &s.b, &s.value}) {
      for (std::size_t i = 5; i < 16; ++i) operand->values[i] = 0;
    }
    Context c(1, 0);
    step(c.context, s.gradient.view(), s.a.view(), s.b.view(), s.value.view());
    for (std::size_t i = 5; i < 16; ++i) EXPECT_EQ(s.value.values[i], 0) << i;
  }
}

TEST(SumOfSquares, TheSameBitsForEveryThreadCount) {
  for (const std::int64_t count : {0, 1, 15, 16, 4096, 4097, 3'000'001}) {
    Operand<float> values = random_operand({count}, 1);
    double expected = 0;
    for (const float value : values.values) expected += static_cast<double>(value) * value;
    double first = 0;
    for (int threads = 1; threads <= 3; ++threads) {
      Context c(threads, 0);
      const double found = sum_of_squares(c.context, values.view());
      EXPECT_NEAR(found, expected, 1e-12 * expected);
      if (threads == 1) first = found;
      EXPECT_EQ(found, first);
    }
  }
  Operand<float> poisoned({100}, 1);
  poisoned.values[99] = std::nanf("");
  Context c(1, 0);
  EXPECT_TRUE(std::isnan(sum_of_squares(c.context, poisoned.view())));
}

TEST(Scale, MultipliesEveryElement) {
  for (int threads = 1; threads <= 3; ++threads) {
    Operand<float> values = random_operand({5001}, 1), before = values;
    Operand<double> wide = widen(values);
    Context c(threads, 0);
    scale(c.context, 0.25, values.view());
    scale(c.context, 0.25, wide.view());
    for (std::size_t i = 0; i < 5001; ++i) EXPECT_EQ(values.values[i], 0.25f * before.values[i]);
    EXPECT_EQ(far_apart(values.values, wide.values, 0, 0), "");
  }
}

TEST(OptimizerStep, RefusesSpansThatDoNotFit) {
  Context c(1, 0);
  Operand<float> three({3}, 0), four({4}, 0);
  Operand<double> wide({3}, 0);
  EXPECT_THROW(sgd_step(c.context, {.lr = 1}, four.view(), {}, three.view()), ShapeError);
  EXPECT_THROW(sgd_step(c.context, {.lr = 1, .momentum = 0.9}, three.view(), {}, three.view()),
               ShapeError);
  EXPECT_THROW(sgd_step(c.context, {.lr = 1}, wide.view(), {}, three.view()), ShapeError);
  EXPECT_THROW(
      adamw_step(c.context, {.count = 0}, three.view(), three.view(), three.view(), three.view()),
      Error);
}

}  // namespace
}  // namespace engine::ops
