// Softmax with cross entropy: PyTorch's numbers, large logits, NaNs, labels out of range, in place,
// and the totals of a batch.
#include "engine/ops/loss/softmax_cross_entropy.h"

#include <gtest/gtest.h>

#include "tests/engine/ops/common/kernel_test_support.h"
#include "tests/engine/ops/loss/among_largest.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

// cross_entropy(logits, labels, reduction='none') of torch 2 in float64, and the gradient of its
// sum.
TEST(SoftmaxCrossEntropy, IsPyTorchs) {
  Operand<double> logits = operand_of<double>({3, 3}, {1, 2, -1, 0.5, 0.5, 3, 100, -50, 99}),
                  loss({3}, 0), gradient({3, 3}, 0);
  Operand<std::int32_t> labels = operand_of<std::int32_t>({3}, {2, 0, 2});
  Context c(1, 0);
  softmax_cross_entropy_forward(c.context, {.logits = logits.view(),
                                            .labels = labels.view(),
                                            .loss = loss.view(),
                                            .gradient = gradient.view()});
  EXPECT_EQ(
      far_apart(loss.values,
                std::vector<double>{3.349012216768186, 2.6520083843911353, 1.3132616875182228},
                1e-14, 0),
      "");
  EXPECT_EQ(
      far_apart(gradient.values,
                std::vector<double>{0.25949646034241913, 0.7053845126982412, -0.9648809730406602,
                                    -0.929490539338795, 0.07050946066120505, 0.8589810786775898,
                                    0.7310585786300049, 5.245415463675382e-66, -0.7310585786300049},
                1e-14, 1e-15),
      "");
}

// The same with label_smoothing=0.1.
TEST(SoftmaxCrossEntropy, LabelSmoothingIsPyTorchs) {
  Operand<double> logits = operand_of<double>({3, 3}, {1, 2, -1, 0.5, 0.5, 3, 100, -50, 99}),
                  loss({3}, 0), gradient({3, 3}, 0);
  Operand<std::int32_t> labels = operand_of<std::int32_t>({3}, {2, 0, 2});
  Context c(1, 0);
  softmax_cross_entropy_forward(c.context, {.logits = logits.view(),
                                            .labels = labels.view(),
                                            .loss = loss.view(),
                                            .gradient = gradient.view(),
                                            .label_smoothing = 0.1});
  EXPECT_EQ(
      far_apart(loss.values,
                std::vector<double>{3.1823455501015196, 2.5686750510578022, 6.246595020851557},
                1e-14, 0),
      "");
  EXPECT_EQ(
      far_apart(gradient.values,
                std::vector<double>{0.2261631270090858, 0.6720511793649079, -0.8982143063739936,
                                    -0.8628238726721283, 0.03717612732787171, 0.8256477453442564,
                                    0.6977252452966716, -0.03333333333333333, -0.6643919119633382},
                1e-14, 1e-15),
      "");
}

TEST(SoftmaxCrossEntropy, Float32AgreesWithFloat64AtEverySizeAndThreadCount) {
  for_each_setting([](int threads) {
    for (const Shape& shape :
         {Shape{0, 4}, Shape{1, 1}, Shape{7, 10}, Shape{100, 10}, Shape{5, 32}, Shape{9, 65},
          Shape{13, 101}, Shape{2, 3000}, Shape{2, 4097}, Shape{1, 70001}}) {
      const std::int64_t rows = shape[0];
      Operand<float> logits = random_operand(shape, 1), loss = gemm_test::nan_operand({rows}),
                     gradient = gemm_test::nan_operand(shape);
      for (float& value : logits.values) value = 200 * value;  // far beyond exp's range
      Operand<std::int32_t> labels({rows}, 0);
      for (std::int64_t r = 0; r < rows; ++r)
        labels.values[static_cast<std::size_t>(r)] = static_cast<std::int32_t>(r % shape[1]);
      Operand<double> wide = widen(logits), wide_loss({rows}, 0), wide_gradient(shape, 0);
      Context c(threads, 0);
      softmax_cross_entropy_forward(c.context, {.logits = logits.view(),
                                                .labels = labels.view(),
                                                .loss = loss.view(),
                                                .gradient = gradient.view(),
                                                .label_smoothing = 0.2});
      softmax_cross_entropy_forward(c.context, {.logits = wide.view(),
                                                .labels = labels.view(),
                                                .loss = wide_loss.view(),
                                                .gradient = wide_gradient.view(),
                                                .label_smoothing = 0.2});
      EXPECT_EQ(far_apart(loss.values, wide_loss.values, 1e-6, 1e-6), "");
      EXPECT_EQ(far_apart(gradient.values, wide_gradient.values, 1e-5, 1e-6), "");
      softmax_cross_entropy_forward(c.context, {.logits = logits.view(),
                                                .labels = labels.view(),
                                                .loss = loss.view(),
                                                .gradient = gradient.view()});
      softmax_cross_entropy_forward(c.context, {.logits = wide.view(),
                                                .labels = labels.view(),
                                                .loss = wide_loss.view(),
                                                .gradient = wide_gradient.view()});
      EXPECT_EQ(far_apart(loss.values, wide_loss.values, 1e-6, 1e-6), "");
      EXPECT_EQ(far_apart(gradient.values, wide_gradient.values, 1e-5, 1e-6), "");
      const std::vector<float> losses = loss.values;
      softmax_cross_entropy_forward(
          c.context,
          {.logits = logits.view(), .labels = labels.view(), .loss = loss.view()});  // inference
      EXPECT_EQ(loss.values, losses);

      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        Operand<float> dloss = random_operand({rows}, 2), dlogits = output(shape, write);
        Operand<double> wide_dloss = widen(dloss), wide_dlogits = widen(dlogits);
        softmax_cross_entropy_backward(c.context, {.gradient = gradient.view(),
                                                   .dloss = dloss.view(),
                                                   .dlogits = dlogits.view(),
                                                   .write = write});
        softmax_cross_entropy_backward(c.context, {.gradient = wide_gradient.view(),
                                                   .dloss = wide_dloss.view(),
                                                   .dlogits = wide_dlogits.view(),
                                                   .write = write});
        EXPECT_EQ(far_apart(dlogits.values, wide_dlogits.values, 1e-5, 2e-6), "");
      }
    }
  });
}

TEST(SoftmaxCrossEntropy, LogitsOfMinusInfinityHaveNoShare) {
  for_each_setting([](int threads) {
    for (const std::int64_t classes : {40, 5000}) {
      Operand<float> logits({1, classes}, -std::numeric_limits<float>::infinity()), loss({1}, 9),
          gradient({1, classes}, 9);
      logits.values[static_cast<std::size_t>(classes) - 2] = 3;
      logits.values.back() = 3;
      Operand<std::int32_t> labels({1}, static_cast<std::int32_t>(classes - 1));
      Context c(threads, 0);
      softmax_cross_entropy_forward(c.context, {.logits = logits.view(),
                                                .labels = labels.view(),
                                                .loss = loss.view(),
                                                .gradient = gradient.view()});
      EXPECT_NEAR(loss.values[0], std::log(2.0), 1e-6);
      std::vector<float> expected(static_cast<std::size_t>(classes), 0);
      expected[static_cast<std::size_t>(classes) - 2] = 0.5f;
      expected.back() = -0.5f;
      EXPECT_EQ(far_apart(gradient.values, expected, 0, 1e-6), "");
    }
  });
}

TEST(SoftmaxCrossEntropy, ANanShowsInALongRowWhereverItIs) {
  for_each_setting([](int threads) {
    for (const std::size_t place : {0, 1, 1023, 1024, 3000, 4999}) {
      Operand<float> logits({1, 5000}, 1), loss({1}, 0), gradient({1, 5000}, 0);
      logits.values[place] = std::nanf("");
      Operand<std::int32_t> labels({1}, 1);
      Context c(threads, 0);
      softmax_cross_entropy_forward(c.context, {.logits = logits.view(),
                                                .labels = labels.view(),
                                                .loss = loss.view(),
                                                .gradient = gradient.view()});
      EXPECT_TRUE(std::isnan(loss.values[0]));
      for (const float value : gradient.values) ASSERT_TRUE(std::isnan(value));
    }
  });
}

TEST(SoftmaxCrossEntropy, ANanShowsInTheLossOfItsRowOnly) {
  for (std::size_t place = 0; place < 3; ++place) {
    Operand<float> logits({2, 3}, 1), loss({2}, 0), gradient({2, 3}, 0);
    logits.values[place] = std::nanf("");
    Operand<std::int32_t> labels({2}, 1);
    Context c(1, 0);
    softmax_cross_entropy_forward(c.context, {.logits = logits.view(),
                                              .labels = labels.view(),
                                              .loss = loss.view(),
                                              .gradient = gradient.view()});
    EXPECT_TRUE(std::isnan(loss.values[0]));
    EXPECT_TRUE(std::isnan(gradient.values[0]));
    EXPECT_NEAR(loss.values[1], std::log(3.0), 1e-6);
  }
}

TEST(SoftmaxCrossEntropy, ANanShowsInARowOfManyClassesWhereverItIs) {
  for_each_setting([](int threads) {
    for (const std::size_t place : {0, 1, 31, 64, 65, 69}) {
      Operand<float> logits({2, 70}, 1), loss({2}, 0), gradient({2, 70}, 0);
      logits.values[place] = std::nanf("");
      Operand<std::int32_t> labels({2}, 1);
      Context c(threads, 0);
      softmax_cross_entropy_forward(c.context, {.logits = logits.view(),
                                                .labels = labels.view(),
                                                .loss = loss.view(),
                                                .gradient = gradient.view()});
      EXPECT_TRUE(std::isnan(loss.values[0]));
      for (std::size_t i = 0; i < 70; ++i) EXPECT_TRUE(std::isnan(gradient.values[i]));
      EXPECT_NEAR(loss.values[1], std::log(70.0), 1e-6);
      EXPECT_NEAR(gradient.values[75], 1.0 / 70, 1e-8);
    }
  });
}

TEST(SoftmaxCrossEntropy, NamesRowLabelAndClassCountOfALabelOutOfRange) {
  for (const std::int32_t bad : {-1, 10, 255}) {
    Operand<float> logits({5, 10}, 0), loss({5}, 0);
    Operand<std::int32_t> labels({5}, 3);
    labels.values[4] = bad;
    Context c(2, 0);
    try {
      softmax_cross_entropy_forward(
          c.context, {.logits = logits.view(), .labels = labels.view(), .loss = loss.view()});
      FAIL() << "accepted the label " << bad;
    } catch (const InputError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("row 4"), std::string::npos) << text;
      EXPECT_NE(text.find("label " + std::to_string(bad)), std::string::npos) << text;
      EXPECT_NE(text.find("10 classes"), std::string::npos) << text;
    }
  }
}

template <class T>
BatchTotals totals_of(int threads, Operand<T> logits, Operand<std::int32_t> labels) {
  Operand<T> loss({logits.shape[0]}, 0);
  Operand<std::int32_t> ranks({logits.shape[0]}, -1);
  Context c(threads, 0);
  softmax_cross_entropy_forward(c.context, {.logits = logits.view(),
                                            .labels = labels.view(),
                                            .loss = loss.view(),
                                            .ranks = ranks.view()});
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
        const std::int64_t rows = shape[0];
        Operand<float> logits = random_operand(shape, 1), loss({rows}, 0), own_loss({rows}, 1),
                       dloss = random_operand({rows}, 2), gradient(shape, 0), dlogits(shape, 0);
        for (float& value : logits.values) value = 20 * value;
        Operand<std::int32_t> labels({rows}, 3), ranks({rows}, -1), own_ranks({rows}, -2);
        Context c(threads, 0);
        softmax_cross_entropy_forward(c.context, {.logits = logits.view(),
                                                  .labels = labels.view(),
                                                  .loss = loss.view(),
                                                  .gradient = gradient.view(),
                                                  .label_smoothing = smoothing,
                                                  .ranks = ranks.view()});
        softmax_cross_entropy_backward(
            c.context,
            {.gradient = gradient.view(), .dloss = dloss.view(), .dlogits = dlogits.view()});
        softmax_cross_entropy_forward(c.context, {.logits = logits.view(),
                                                  .labels = labels.view(),
                                                  .loss = own_loss.view(),
                                                  .gradient = logits.view(),
                                                  .label_smoothing = smoothing,
                                                  .ranks = own_ranks.view()});
        EXPECT_EQ(own_loss.values, loss.values);
        EXPECT_EQ(own_ranks.values, ranks.values);
        EXPECT_EQ(logits.values, gradient.values);
        softmax_cross_entropy_backward(
            c.context,
            {.gradient = logits.view(), .dloss = dloss.view(), .dlogits = logits.view()});
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
