// Batch normalization: PyTorch's numbers, the fast kernels against float64, hard cases for the
// statistics, and merging of parts.
#include "engine/ops/norm/batch_norm.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/engine/ops/norm/norm_cases.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

// Made with torch 2 in float64 on 6 rows: bn = BatchNorm1d(2) with the weights and running
// statistics below; y = relu(bn(x) + residual); y.backward(dy).
TEST(BatchNorm, IsPyTorchs) {
  const Shape shape{6, 2}, vector{2};
  WideBatchNorm c;
  c.relu = c.with_residual = true;
  c.x = operand_of<double>(shape, {1, -2, 2, 0.5, 4, 3, -1, 0.25, 0.5, -1, 3, 2});
  c.gamma = operand_of<double>(vector, {1.5, -0.5});
  c.beta = operand_of<double>(vector, {0.25, 0.1});
  c.residual = operand_of<double>(shape, {0.1, 0.2, -0.3, 0.4, 0, -1, 1, 0.5, 0.2, -0.1, -4, 0});
  c.dy = operand_of<double>(shape, {1, 2, -1, 0.5, 0.25, 3, 2, -2, 1, 1, -0.5, 4});
  c.running_mean = operand_of<double>(vector, {0.3, -0.2});
  c.running_var = operand_of<double>(vector, {2, 0.5});
  c.y = c.dx = c.dresidual = Operand<double>(shape, 0);
  c.mean = c.inverse_std = c.dgamma = c.dbeta = Operand<double>(vector, 0);
  c.sums = c.backward_sums = Operand<double>({2, 2}, 0);
  Context context(1, 0);
  c.run(context.context);
  const double near = 1e-13;
  EXPECT_EQ(far_apart(c.y.values,
                      std::vector<double>{0.0, 1.0291164760359723, 0.330264391091933,
                                          0.48764209362650895, 2.4555334683332113, 0.0, 0.0,
                                          0.6617895318674553, 0.0, 0.432526723072187, 0.0, 0.0},
                      near, near),
            "");
  EXPECT_EQ(
      far_apart(c.dx.values,
                std::vector<double>{0.12023781808757497, -0.26515611837994374, -0.8029541504073414,
                                    -0.078450420432585, 0.3167241631199029, -0.18833447544901158,
                                    0.14135267783612948, 0.6888418551267104, 0.12551653302471358,
                                    -0.07183793801548612, 0.09912295833902042, -0.0850629028496839},
                near, near),
      "");
  EXPECT_EQ(far_apart(c.dresidual.values,
                      std::vector<double>{0, 2, -1, 0.5, 0.25, 0, 0, -2, 0, 1, 0, 0}, near, near),
            "");
  EXPECT_EQ(far_apart(c.dgamma.values, std::vector<double>{0.1140793173275799, -3.5220033164449513},
                      near, near),
            "");
  EXPECT_EQ(far_apart(c.dbeta.values, std::vector<double>{-0.75, 1.5}, near, near), "");

  // Running statistics (momentum 0.1, unbiased variance), and what inference then makes of x.
  EXPECT_EQ(far_apart(c.running_mean.values,
                      std::vector<double>{0.42833333333333334, -0.13416666666666668}, near, near),
            "");
  EXPECT_EQ(far_apart(c.running_var.values,
                      std::vector<double>{2.1241666666666665, 0.7910416666666666}, near, near),
            "");
  c.from_running(context.context);
  c.relu = c.with_residual = false;
  c.normalize(context.context);
  EXPECT_EQ(
      far_apart(c.y.values,
                std::vector<double>{0.8383541372749347, 1.1489153160130288, 1.8675450479599518,
                                    -0.25650940396869804, 3.925926869329986, -1.6619341239504248,
                                    -1.2200276840950992, -0.11596693197052536, 0.3237586819324262,
                                    0.586745428020338, 2.896735958644969, -1.0997642359577342},
                near, near),
      "");
}

void compare_with_float64(const Shape& shape, int threads, int options) {
  const std::int64_t channels = shape[shape.rank() - 1];
  const bool relu = options & 1;
  HostBatchNorm fast = batch_norm_of(shape, relu, options & 2,
                                     options & 4 ? Write::kAdd : Write::kOverwrite, random_operand);
  fast.x = shifted_operand(shape, 1);
  WideBatchNorm slow = fast.as(widen, widen, std::identity());
  Context c(threads, batch_norm_scratch_bytes(fast.rows(), channels, DType::kF32, threads)),
      wide(1, batch_norm_scratch_bytes(fast.rows(), channels, DType::kF64, 1));
  fast.run(c.context);
  slow.run(wide.context);
  // An output that lies within rounding of the ReLU's corner may fall on either side; its gradient
  // then differs by all of dy.
  bool corner = false;
  for (std::size_t i = 0; relu && i < slow.y.values.size(); ++i)
    corner |= (fast.y.values[i] > 0) != (slow.y.values[i] > 0);
  EXPECT_EQ(far_apart(fast.mean.values, slow.mean.values, 1e-6, 1e-6), "");
  EXPECT_EQ(far_apart(fast.inverse_std.values, slow.inverse_std.values, 2e-6, 0), "");
  EXPECT_EQ(far_apart(fast.y.values, slow.y.values, 1e-5, 2e-5), "");
  if (corner) return;
  const double rows = static_cast<double>(fast.rows());
  EXPECT_EQ(far_apart(fast.dbeta.values, slow.dbeta.values, 1e-5, 1e-6 * rows), "");
  EXPECT_EQ(far_apart(fast.dgamma.values, slow.dgamma.values, 1e-5, 2e-6 * rows), "");
  // With one row inverse_std is 1 / sqrt(eps): what cancels in float64 leaves rounding times that.
  EXPECT_EQ(far_apart(fast.dx.values, slow.dx.values, 1e-5, rows < 4 ? 1e-3 : 2e-5), "");
  if (fast.with_residual) {
    EXPECT_EQ(far_apart(fast.dresidual.values, slow.dresidual.values, 1e-6, 1e-6), "");
  }
}

TEST(BatchNorm, FastAgreesWithFloat64) {
  for_each_setting([](int threads) {
    for (std::int64_t channels :
         {1, 2, 3, 4, 5, 7, 8, 9, 10, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 130}) {
      for (const Shape& shape :
           {Shape{1, channels}, Shape{7, channels}, Shape{3, 5, 6, channels}}) {
        SCOPED_TRACE(shape.to_string());
        for (int options = 0; options < 8; ++options) compare_with_float64(shape, threads, options);
      }
    }
    for (const Shape& shape :
         {Shape{4, 23, 29, 16}, Shape{2500, 13}, Shape{20, 10, 10, 32}, Shape{600, 200}}) {
      SCOPED_TRACE(shape.to_string());
      for (int options = 0; options < 8; ++options) compare_with_float64(shape, threads, options);
    }
  });
}

TEST(BatchNorm, StatisticsDoNotCancel) {
  for_each_setting([](int threads) {
    for (std::int64_t channels : {1, 5, 16, 33}) {
      Operand<float> x = canceling_operand(channels);
      Operand<double> wide = widen(x), found({2, channels}, 0), expected({2, channels}, 0);
      Context context(threads, batch_norm_scratch_bytes(20'000, channels, DType::kF32, threads));
      batch_norm_statistics(context.context, x.view(), found.view());
      batch_norm_statistics(context.context, wide.view(), expected.view());
      EXPECT_EQ(far_apart(found.values, expected.values, 1e-6, 0), "") << channels;
    }
  });
}

TEST(BatchNorm, NoRowsGiveZeroSumsAndLeaveRunningStatistics) {
  for_each_setting([](int threads) {
    HostBatchNorm c = batch_norm_of({0, 2, 2, 3}, false, false, Write::kOverwrite, random_operand);
    const std::vector<float> mean = c.running_mean.values, var = c.running_var.values;
    Context context(threads, batch_norm_scratch_bytes(0, 3, DType::kF32, threads));
    c.run(context.context);
    EXPECT_EQ(c.sums.values, std::vector<double>(6, 0.0));
    EXPECT_EQ(c.mean.values, std::vector<float>(3, 0.f));
    EXPECT_EQ(far_apart(c.inverse_std.values, std::vector<double>(3, 1 / std::sqrt(1e-5)), 1e-6, 0),
              "");
    EXPECT_EQ(c.running_mean.values, mean);
    EXPECT_EQ(c.running_var.values, var);
    EXPECT_EQ(c.backward_sums.values, std::vector<double>(6, 0.0));
  });
}

// What synchronized statistics rely on: the phases on two pieces of the rows, with merged sums, do
// what they do on the whole.
TEST(BatchNorm, PiecesWithMergedSumsEqualTheWhole) {
  const std::int64_t channels = 6, rows = 50, cut = 17;
  WideBatchNorm whole =
      batch_norm_of({rows, channels}, true, false, Write::kOverwrite, random_operand)
          .as(widen, widen, std::identity());
  Context c(1, 0);
  whole.run(c.context);
  WideBatchNorm pieces[] = {whole, whole};
  for (const bool second : {false, true}) {
    WideBatchNorm& piece = pieces[second];
    const std::int64_t first = second ? cut : 0, last = second ? rows : cut;
    for (Operand<double>* each : {&piece.x, &piece.dy, &piece.y, &piece.dx})
      *each = operand_of<double>(
          {last - first, channels},
          {each->values.begin() + first * channels, each->values.begin() + last * channels});
    piece.find_sums(c.context);
  }
  Operand<double> total({2, channels}, 0), backward({2, channels}, 0);
  for (std::size_t k = 0; k < channels;
       ++k) {  // mean of means by rows; squares plus what the means' distance adds
    const double n0 = cut, n1 = rows - cut, m0 = pieces[0].sums.values[k],
                 m1 = pieces[1].sums.values[k];
    total.values[k] = (n0 * m0 + n1 * m1) / rows;
    total.values[channels + k] = pieces[0].sums.values[channels + k] +
                                 pieces[1].sums.values[channels + k] +
                                 (m1 - m0) * (m1 - m0) * n0 * n1 / rows;
  }
  for (WideBatchNorm& piece : pieces) {
    batch_norm_finish_statistics(c.context, {total.view(), rows, piece.eps, 0.1, piece.mean.view(),
                                             piece.inverse_std.view()});
    piece.normalize(c.context);
    piece.find_backward_sums(c.context);
    for (std::size_t k = 0; k < 2 * channels; ++k)
      backward.values[k] += piece.backward_sums.values[k];
  }
  std::vector<double> dx;
  for (WideBatchNorm& piece : pieces) {
    piece.backward_sums = backward;
    piece.backward_data(c.context, rows);
    dx.insert(dx.end(), piece.dx.values.begin(), piece.dx.values.end());
  }
  EXPECT_EQ(far_apart(total.values, whole.sums.values, 1e-13, 1e-13), "");
  EXPECT_EQ(far_apart(dx, whole.dx.values, 1e-12, 1e-13), "");
}

TEST(BatchNorm, ANanStaysInItsChannel) {
  for_each_setting([](int threads) {
    HostBatchNorm c = batch_norm_of({40, 9}, true, false, Write::kOverwrite, random_operand);
    c.x.values[9 * 20 + 4] = std::nanf("");
    Context context(threads, batch_norm_scratch_bytes(40, 9, DType::kF32, threads));
    c.find_sums(context.context);
    for (std::size_t i = 0; i < c.sums.values.size(); ++i)
      EXPECT_EQ(std::isnan(c.sums.values[i]), i % 9 == 4) << i;
    // A ReLU does not hide it.
    c.mean = c.beta = Operand<float>({9}, 0);
    c.inverse_std = c.gamma = Operand<float>({9}, 1);
    c.normalize(context.context);
    EXPECT_TRUE(std::isnan(c.y.values[9 * 20 + 4]));
  });
}

TEST(BatchNorm, TheSameBitsInEveryRun) {
  for_each_setting([](int threads) {
    Operand<float> x = random_operand({5000, 20}, 1);
    Operand<double> a({2, 20}, 0), b = a;
    Context c(threads, batch_norm_scratch_bytes(5000, 20, DType::kF32, threads));
    batch_norm_statistics(c.context, x.view(), a.view());
    batch_norm_statistics(c.context, x.view(), b.view());
    EXPECT_EQ(a.values, b.values);
  });
}

TEST(BatchNorm, RefusesShapesThatDoNotFit) {
  HostBatchNorm c = batch_norm_of({4, 3}, false, false, Write::kOverwrite, random_operand);
  Context context(1, batch_norm_scratch_bytes(4, 3, DType::kF32, 1)), bare(1, 0);
  EXPECT_THROW(c.find_sums(bare.context), Error);
  Operand<double> wide({4, 3}, 0);
  EXPECT_THROW(
      batch_norm_normalize(context.context,
                           {c.x.view(), c.mean.view(), c.inverse_std.view(), c.gamma.view(),
                            c.beta.view(), TensorView{}, false, wide.view()}),
      ShapeError);
  c.sums = Operand<double>({2, 4}, 0);
  EXPECT_THROW(c.find_sums(context.context), ShapeError);
  c.gamma = Operand<float>({4}, 0);
  EXPECT_THROW(c.normalize(context.context), ShapeError);
}

TEST(BatchNormCheck, FailsOnNanAndOnAWrongValue) {
  EXPECT_EQ(far_apart(std::vector<float>{1}, std::vector<double>{1}, 0, 0), "");
  EXPECT_NE(far_apart(std::vector<float>{std::nanf("")}, std::vector<double>{1}, 1, 1), "");
  EXPECT_NE(far_apart(std::vector<float>{1}, std::vector<double>{std::nan("")}, 1, 1), "");
  EXPECT_NE(far_apart(std::vector<float>{1.01f}, std::vector<double>{1}, 1e-3, 1e-3), "");
  EXPECT_NE(far_apart(std::vector<float>{}, std::vector<double>{1}, 1, 1), "");
}

}  // namespace
}  // namespace engine::ops
