// Softmax with cross entropy: PyTorch's numbers, large logits, NaNs, labels out of range, in place,
// and the totals of a batch.
#include "engine/ops/loss/softmax_cross_entropy.h"

#include <gtest/gtest.h>

#include "tests/engine/ops/common/kernel_runs.h"
#include "tests/engine/ops/loss/among_largest.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

template <class T>
struct Losses {
  Operand<T> loss, gradient;
  Operand<std::int32_t> ranks;
};

template <class T>
Losses<T> losses_of(int threads, Operand<T> logits, Operand<std::int32_t> labels,
                    double smoothing = 0) {
  Losses<T> found{{labels.shape, T(9)}, {logits.shape, T(9)}, {labels.shape, -1}};
  Context c(threads, 0);
  softmax_cross_entropy_forward(c.context, {logits.view(), labels.view(), found.loss.view(),
                                            found.gradient.view(), smoothing, found.ranks.view()});
  return found;
}

// cross_entropy(logits, labels, reduction='none', label_smoothing) of torch 2 in float64, and the
// gradient of its sum.
TEST(SoftmaxCrossEntropy, IsPyTorchs) {
  struct Case {
    double smoothing;
    std::vector<double> loss, gradient;
  };
  const Case cases[] = {{0,
                         {3.349012216768186, 2.6520083843911353, 1.3132616875182228},
                         {0.25949646034241913, 0.7053845126982412, -0.9648809730406602,
                          -0.929490539338795, 0.07050946066120505, 0.8589810786775898,
                          0.7310585786300049, 5.245415463675382e-66, -0.7310585786300049}},
                        {0.1,
                         {3.1823455501015196, 2.5686750510578022, 6.246595020851557},
                         {0.2261631270090858, 0.6720511793649079, -0.8982143063739936,
                          -0.8628238726721283, 0.03717612732787171, 0.8256477453442564,
                          0.6977252452966716, -0.03333333333333333, -0.6643919119633382}}};
  for (const Case& each : cases) {
    const auto found =
        losses_of(1, operand_of<double>({3, 3}, {1, 2, -1, 0.5, 0.5, 3, 100, -50, 99}),
                  operand_of<std::int32_t>({3}, {2, 0, 2}), each.smoothing);
    EXPECT_EQ(far_apart(found.loss.values, each.loss, 1e-14, 0), "");
    EXPECT_EQ(far_apart(found.gradient.values, each.gradient, 1e-14, 1e-15), "");
  }
}

TEST(SoftmaxCrossEntropy, Float32AgreesWithFloat64AtEverySizeAndThreadCount) {
  for_each_setting([](int threads) {
    for (const Shape& shape :
         {Shape{0, 4}, Shape{1, 1}, Shape{7, 10}, Shape{100, 10}, Shape{5, 32}, Shape{9, 65},
          Shape{13, 101}, Shape{2, 3000}, Shape{2, 4097}, Shape{1, 70001}})
      for (const double smoothing : {0.2, 0.0})
        for (const Write write : {Write::kOverwrite, Write::kAdd}) {
          const Shape rows{shape[0]};
          Operand<float> logits = random_operand(shape, 1);
          for (float& value : logits.values) value = 200 * value;  // far beyond exp's range
          Operand<std::int32_t> labels(rows, 0);
          for (std::size_t r = 0; r < labels.values.size(); ++r)
            labels.values[r] = static_cast<std::int32_t>(static_cast<std::int64_t>(r) % shape[1]);
          const Given operands[] = {
              logits,        labels,         random_operand(rows, 2), nothing(rows),
              nothing(rows), nothing(shape), output(shape, write)};
          const auto [found, expected] = run_both(
              threads, operands,
              [&](KernelContext& c, TensorView from, TensorView of, TensorView dloss,
                  TensorView loss, TensorView inferred, TensorView gradient, TensorView dlogits) {
                softmax_cross_entropy_forward(c, {from, of, loss, gradient, smoothing});
                softmax_cross_entropy_forward(
                    c,
                    {.logits = from, .labels = of, .loss = inferred, .label_smoothing = smoothing});
                softmax_cross_entropy_backward(c, {gradient, dloss, dlogits, write});
              });
          EXPECT_EQ(far_apart(found[3], expected[3], 1e-6, 1e-6), "");
          EXPECT_EQ(found[4], found[3]);
          EXPECT_EQ(far_apart(found[5], expected[5], 1e-5, 1e-6), "");
          EXPECT_EQ(far_apart(found[6], expected[6], 1e-5, 2e-6), "");
        }
  });
}

TEST(SoftmaxCrossEntropy, LogitsOfMinusInfinityHaveNoShare) {
  for_each_setting([](int threads) {
    for (const std::int64_t classes : {40, 5000}) {
      Operand<float> logits({1, classes}, -std::numeric_limits<float>::infinity());
      logits.values[static_cast<std::size_t>(classes) - 2] = 3;
      logits.values.back() = 3;
      const auto found = losses_of(
          threads, logits, operand_of<std::int32_t>({1}, {static_cast<std::int32_t>(classes - 1)}));
      EXPECT_NEAR(found.loss.values[0], std::log(2.0), 1e-6);
      std::vector<float> expected(static_cast<std::size_t>(classes), 0);
      expected[static_cast<std::size_t>(classes) - 2] = 0.5f;
      expected.back() = -0.5f;
      EXPECT_EQ(far_apart(found.gradient.values, expected, 0, 1e-6), "");
    }
  });
}

// In rows of one vector, of several and of many blocks.
TEST(SoftmaxCrossEntropy, ANanShowsInItsRowOnlyWhereverItIs) {
  for_each_setting([](int threads) {
    const std::pair<std::int64_t, std::vector<std::size_t>> cases[] = {
        {3, {0, 1, 2}}, {70, {0, 1, 31, 64, 65, 69}}, {5000, {0, 1, 1023, 1024, 3000, 4999}}};
    for (const auto& [classes, places] : cases)
      for (const std::size_t place : places) {
        Operand<float> logits({2, classes}, 1);
        logits.values[place] = std::nanf("");
        const auto found = losses_of(threads, logits, Operand<std::int32_t>({2}, 1));
        const auto width = static_cast<std::size_t>(classes);
        EXPECT_TRUE(std::isnan(found.loss.values[0]));
        for (std::size_t i = 0; i < width; ++i)
          ASSERT_TRUE(std::isnan(found.gradient.values[i])) << i;
        EXPECT_NEAR(found.loss.values[1], std::log(static_cast<double>(classes)),
                    classes > 100 ? 2e-6 : 1e-6);
        EXPECT_NEAR(found.gradient.values[width + 2], 1.0 / static_cast<double>(classes),
                    classes < 70 ? 1e-7 : 1e-8);
      }
  });
}

TEST(SoftmaxCrossEntropy, NamesRowLabelAndClassCountOfALabelOutOfRange) {
  for (const std::int32_t bad : {-1, 10, 255}) {
    Operand<float> logits({5, 10}, 0), loss({5}, 0);
    Operand<std::int32_t> labels({5}, 3);
    labels.values[4] = bad;
    Context c(2, 0);
    const std::string text = test_support::error_of<InputError>([&] {
      softmax_cross_entropy_forward(
          c.context, {.logits = logits.view(), .labels = labels.view(), .loss = loss.view()});
    });
    EXPECT_CONTAINS(text, "row 4");
    EXPECT_CONTAINS(text, "label " + std::to_string(bad));
    EXPECT_CONTAINS(text, "10 classes");
  }
}

// In rows that are computed together, alone, and in blocks: as if these rows were not there.
template <class T>
void expect_left_out(int threads, const Shape& shape, double smoothing) {
  const auto logits = [&] {
    if constexpr (std::is_same_v<T, double>)
      return widen(random_operand(shape, 1));
    else
      return random_operand(shape, 1);
  }();
  const Operand<std::int32_t> labels({shape[0]}, 2);
  const auto all = losses_of<T>(threads, logits, labels, smoothing);
  auto partial_logits = logits;
  auto partial_labels = labels;
  const auto width = static_cast<std::size_t>(shape[1]);
  for (std::size_t r = 0; r < labels.values.size(); r += 2) {
    partial_labels.values[r] = kNoLabel;
    partial_logits.values[r * width] = std::numeric_limits<T>::quiet_NaN();
  }
  const auto found = losses_of<T>(threads, partial_logits, partial_labels, smoothing);
  for (std::size_t r = 0; r < labels.values.size(); ++r) {
    const bool counts = r % 2 == 1;
    ASSERT_EQ(found.loss.values[r], counts ? all.loss.values[r] : T{0}) << r;
    ASSERT_EQ(found.ranks.values[r], counts ? all.ranks.values[r] : kNoRank) << r;
    for (std::size_t i = r * width; i < (r + 1) * width; ++i)
      ASSERT_EQ(found.gradient.values[i], counts ? all.gradient.values[i] : T{0}) << i;
  }
}

TEST(SoftmaxCrossEntropy, ARowWithoutALabelDoesNotCount) {
  for_each_setting([](int threads) {
    for (const Shape& shape : {Shape{37, 3}, Shape{9, 65}, Shape{3, 3000}, Shape{3, 5000}})
      for (const double smoothing : {0.0, 0.2}) {
        expect_left_out<float>(threads, shape, smoothing);
        expect_left_out<double>(threads, shape, smoothing);
      }
  });
}

template <class T>
BatchTotals totals_of(int threads, Operand<T> logits, Operand<std::int32_t> labels) {
  auto [loss, gradient, ranks] = losses_of(threads, logits, labels);
  Context c(threads, 0);
  BatchTotals totals{.loss_sum = 1, .correct = 2, .rows = 3, .top5 = 4}, more;
  add_batch_totals(
      c.context,
      {.ranks = ranks.view(), .loss = loss.view(), .top5 = true, .totals = &totals, .more = &more});
  EXPECT_EQ(totals.rows, more.rows + 3);
  EXPECT_EQ(totals.correct, more.correct + 2);
  EXPECT_EQ(totals.top5, more.top5 + 4);
  BatchTotals without;
  add_batch_totals(c.context,
                   {.ranks = ranks.view(), .loss = loss.view(), .top5 = false, .totals = &without});
  EXPECT_EQ(without.correct, more.correct);
  EXPECT_EQ(without.top5, 0);
  return more;
}

TEST(BatchTotals, TakeTheFirstLargestAndNeverARowWithANan) {
  const float nan = std::nanf("");
  const Operand<float> logits =
      operand_of<float>({6, 3}, {1, 2, 0, 5, 5, 1, 5, 5, 1, nan, 1, 0, 0, nan, 0, nan, nan, nan});
  const Operand<std::int32_t> labels = operand_of<std::int32_t>({6}, {1, 0, 1, 0, 1, 0});
  for_each_setting([&](int threads) {
    for (const BatchTotals& found :
         {totals_of(threads, logits, labels), totals_of(threads, widen(logits), labels)}) {
      EXPECT_EQ(found.rows, 6);
      EXPECT_EQ(found.correct, 2);
      EXPECT_EQ(found.top5, 3);
    }
  });
}

TEST(BatchTotals, LeaveOutRowsWithoutALabel) {
  const Operand<float> logits = operand_of<float>({4, 2}, {1, 2, 1, 2, 2, 1, 1, 2});
  const Operand<std::int32_t> labels = operand_of<std::int32_t>({4}, {kNoLabel, 1, 1, kNoLabel});
  const BatchTotals found = totals_of(1, logits, labels);
  EXPECT_EQ(found.rows, 2);
  EXPECT_EQ(found.correct, 1);
  EXPECT_EQ(found.top5, 2);
}

// Whole numbers of which many are equal, a NaN and infinities; rows of one vector and of many
// blocks.
TEST(BatchTotals, AreThoseOfSortedRows) {
  for_each_setting([](int threads) {
    for (const Shape& shape : {Shape{0, 4}, Shape{40, 1}, Shape{40, 7}, Shape{30, 33},
                               Shape{9, 1000}, Shape{9, 4097}, Shape{7, 70001}}) {
      SCOPED_TRACE(shape.to_string());
      Operand<float> logits = random_operand(shape, 1);
      for (float& value : logits.values) value = std::round(4 * value);
      Operand<std::int32_t> labels({shape[0]}, 0);
      for (std::int64_t r = 0; r < shape[0]; ++r) {
        const std::int64_t classes = shape[1], label = (r * r * 7919) % classes;
        labels.values[static_cast<std::size_t>(r)] = static_cast<std::int32_t>(label);
        float* row = logits.values.data() + r * classes;
        if (r % 3 == 0) row[label] = 4;  // as large as any, and one of many
        if (r % 4 == 1) row[label] = 5;
        if (r == 5) row[classes - 1] = std::nanf("");
        if (r == 6) row[label] = -std::numeric_limits<float>::infinity();
        if (r == 8) row[0] = std::numeric_limits<float>::infinity();
      }
      for (const BatchTotals& found :
           {totals_of(threads, logits, labels), totals_of(threads, widen(logits), labels)}) {
        EXPECT_EQ(found.correct, among_largest(logits, labels.values, 1));
        EXPECT_EQ(found.top5, among_largest(logits, labels.values, 5));
      }
    }
  });
}

// The gradient in place of the logits, and the scaled one in place of that: the same bits.
TEST(SoftmaxCrossEntropy, RunsInPlace) {
  for_each_setting([](int threads) {
    for (const Shape& shape :
         {Shape{7, 10}, Shape{9, 65}, Shape{2, 3000}, Shape{2, 4097}, Shape{1, 70001}})
      for (const double smoothing : {0.0, 0.2}) {
        SCOPED_TRACE(shape.to_string() + " " + std::to_string(smoothing));
        Operand<float> logits = random_operand(shape, 1), dloss = random_operand({shape[0]}, 2),
                       own_loss({shape[0]}, 1), dlogits(shape, 0);
        for (float& value : logits.values) value = 20 * value;
        Operand<std::int32_t> labels({shape[0]}, 3), own_ranks({shape[0]}, -2);
        auto found = losses_of(threads, logits, labels, smoothing);
        Context c(threads, 0);
        softmax_cross_entropy_backward(c.context,
                                       {found.gradient.view(), dloss.view(), dlogits.view()});
        softmax_cross_entropy_forward(c.context, {logits.view(), labels.view(), own_loss.view(),
                                                  logits.view(), smoothing, own_ranks.view()});
        EXPECT_EQ(own_loss.values, found.loss.values);
        EXPECT_EQ(own_ranks.values, found.ranks.values);
        EXPECT_EQ(logits.values, found.gradient.values);
        softmax_cross_entropy_backward(c.context, {logits.view(), dloss.view(), logits.view()});
        EXPECT_EQ(logits.values, dlogits.values);
      }
  });
}

TEST(SumF64, AddsInF64) {
  Operand<float> values({100'001}, 1e-4f);
  values.values[0] = 1e6f;
  EXPECT_NEAR(sum_f64(values.view()), 1e6 + 1e5 * static_cast<double>(1e-4f), 1e-4);
  Operand<float> none({0}, 0);
  EXPECT_EQ(sum_f64(none.view()), 0);
}

TEST(SoftmaxCrossEntropy, RefusesShapesThatDoNotFit) {
  Context c(1, 0);
  Operand<float> logits({2, 3}, 0), loss({3}, 0), flat({6}, 0);
  Operand<std::int32_t> labels({2}, 0);
  EXPECT_THROW(
      softmax_cross_entropy_forward(
          c.context, {.logits = logits.view(), .labels = labels.view(), .loss = loss.view()}),
      ShapeError);
  EXPECT_THROW(
      softmax_cross_entropy_forward(
          c.context, {.logits = flat.view(), .labels = labels.view(), .loss = loss.view()}),
      ShapeError);
  EXPECT_THROW(softmax_cross_entropy_forward(
                   c.context, {.logits = logits.view(),
                               .labels = labels.view(),
                               .loss = operand_of<float>({2}, {0, 0}).view(),
                               .ranks = operand_of<std::int32_t>({3}, {0, 0, 0}).view()}),
               ShapeError);
}

}  // namespace
}  // namespace engine::ops
