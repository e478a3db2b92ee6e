// Batch normalization: PyTorch's numbers, the fast kernels against float64, hard cases for the
// statistics, and merging of parts.
#include "engine/ops/norm/batch_norm.h"

#include <gtest/gtest.h>

#include "tests/engine/ops/common/kernel_test_support.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

// All operands of one call of every phase, in one dtype.
template <class T>
struct BatchNormCase {
  Operand<T> x, gamma, beta, residual, dy, dx, dresidual;
  Operand<T> mean, inverse_std, y, dgamma, dbeta;
  Operand<double> sums, backward_sums;

  void run(int threads, bool relu, bool with_residual, Write write) {
    const std::int64_t channels = gamma.shape[0], rows = x.shape.count() / channels;
    mean = inverse_std = dgamma = dbeta = Operand<T>({channels}, 0);
    y = Operand<T>(x.shape, 0);
    sums = backward_sums = Operand<double>({2, channels}, std::nan(""));
    Context c(threads, batch_norm_scratch_bytes(rows, channels, DTypeOf<T>::value, threads));
    const TensorView absent{};
    batch_norm_statistics(c.context, x.view(), sums.view());
    batch_norm_finish_statistics(c.context, {.sums = sums.view(),
                                             .rows = rows,
                                             .eps = 1e-5,
                                             .momentum = 0.1,
                                             .mean = mean.view(),
                                             .inverse_std = inverse_std.view()});
    batch_norm_normalize(c.context, {.x = x.view(),
                                     .mean = mean.view(),
                                     .inverse_std = inverse_std.view(),
                                     .gamma = gamma.view(),
                                     .beta = beta.view(),
                                     .residual = with_residual ? residual.view() : absent,
                                     .relu = relu,
                                     .y = y.view()});
    batch_norm_backward_sums(c.context, {.x = x.view(),
                                         .y = relu ? y.view() : absent,
                                         .dy = dy.view(),
                                         .mean = mean.view(),
                                         .inverse_std = inverse_std.view(),
                                         .sums = backward_sums.view(),
                                         .dresidual = with_residual ? dresidual.view() : absent,
                                         .write_residual = write});
    batch_norm_backward_parameters(
        c.context, {.sums = backward_sums.view(), .dgamma = dgamma.view(), .dbeta = dbeta.view()});
    batch_norm_backward_data(c.context, {.x = x.view(),
                                         .y = relu ? y.view() : absent,
                                         .dy = dy.view(),
                                         .mean = mean.view(),
                                         .inverse_std = inverse_std.view(),
                                         .gamma = gamma.view(),
                                         .sums = backward_sums.view(),
                                         .rows = rows,
                                         .dx = dx.view(),
                                         .write = write});
  }
};

// Made with torch 2 in float64 on 6 rows: bn = BatchNorm1d(2) with the weights and running
// statistics below; y = relu(bn(x) + residual); y.backward(dy).
TEST(BatchNorm, IsPyTorchs) {
  BatchNormCase<double> c;
  c.x = operand_of<double>({6, 2}, {1, -2, 2, 0.5, 4, 3, -1, 0.25, 0.5, -1, 3, 2});
  c.gamma = operand_of<double>({2}, {1.5, -0.5});
  c.beta = operand_of<double>({2}, {0.25, 0.1});
  c.residual = operand_of<double>({6, 2}, {0.1, 0.2, -0.3, 0.4, 0, -1, 1, 0.5, 0.2, -0.1, -4, 0});
  c.dy = operand_of<double>({6, 2}, {1, 2, -1, 0.5, 0.25, 3, 2, -2, 1, 1, -0.5, 4});
  c.dx = c.dresidual = Operand<double>({6, 2}, 0);
  c.run(1, true, true, Write::kOverwrite);
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
  Operand<double> running_mean = operand_of<double>({2}, {0.3, -0.2}),
                  running_var = operand_of<double>({2}, {2, 0.5});
  Context context(1, 0);
  batch_norm_finish_statistics(context.context, {.sums = c.sums.view(),
                                                 .rows = 6,
                                                 .eps = 1e-5,
                                                 .momentum = 0.1,
                                                 .mean = c.mean.view(),
                                                 .inverse_std = c.inverse_std.view(),
                                                 .running_mean = running_mean.view(),
                                                 .running_var = running_var.view()});
  EXPECT_EQ(far_apart(running_mean.values,
                      std::vector<double>{0.42833333333333334, -0.13416666666666668}, near, near),
            "");
  EXPECT_EQ(far_apart(running_var.values,
                      std::vector<double>{2.1241666666666665, 0.7910416666666666}, near, near),
            "");
  batch_norm_from_running(context.context, {.running_mean = running_mean.view(),
                                            .running_var = running_var.view(),
                                            .eps = 1e-5,
                                            .mean = c.mean.view(),
                                            .inverse_std = c.inverse_std.view()});
  batch_norm_normalize(context.context, {.x = c.x.view(),
                                         .mean = c.mean.view(),
                                         .inverse_std = c.inverse_std.view(),
                                         .gamma = c.gamma.view(),
                                         .beta = c.beta.view(),
                                         .y = c.y.view()});
  EXPECT_EQ(
      far_apart(c.y.values,
                std::vector<double>{0.8383541372749347, 1.1489153160130288, 1.8675450479599518,
                                    -0.25650940396869804, 3.925926869329986, -1.6619341239504248,
                                    -1.2200276840950992, -0.11596693197052536, 0.3237586819324262,
                                    0.586745428020338, 2.896735958644969, -1.0997642359577342},
                near, near),
      "");
}

void compare_with_float64(const Shape& shape, int threads, bool relu, bool with_residual,
                          Write write) {
  const std::int64_t channels = shape[shape.rank() - 1];
  BatchNormCase<float> fast;
  fast.x = random_operand(shape, 1);
  for (std::size_t i = 0; i < fast.x.values.size(); ++i)
    fast.x.values[i] += static_cast<float>(i % 7) - 2;
  fast.gamma = random_operand({channels}, 2);
  fast.beta = random_operand({channels}, 3);
  fast.residual = random_operand(shape, 4);
  fast.dy = random_operand(shape, 5);
  fast.dx = output(shape, write);
  fast.dresidual = output(shape, write);
  BatchNormCase<double> slow{widen(fast.x),
                             widen(fast.gamma),
                             widen(fast.beta),
                             widen(fast.residual),
                             widen(fast.dy),
                             widen(fast.dx),
                             widen(fast.dresidual),
                             {},
                             {},
                             {},
                             {},
                             {},
                             {},
                             {}};
  fast.run(threads, relu, with_residual, write);
  slow.run(1, relu, with_residual, write);
  // An output that lies within rounding of the ReLU's corner may fall on either side; its gradient
  // then differs by all of dy.
  bool corner = false;
  for (std::size_t i = 0; relu && i < slow.y.values.size(); ++i)
    corner |= (fast.y.values[i] > 0) != (slow.y.values[i] > 0);
  EXPECT_EQ(far_apart(fast.mean.values, slow.mean.values, 1e-6, 1e-6), "");
  EXPECT_EQ(far_apart(fast.inverse_std.values, slow.inverse_std.values, 2e-6, 0), "");
  EXPECT_EQ(far_apart(fast.y.values, slow.y.values, 1e-5, 2e-5), "");
  if (corner) return;
  const double rows = static_cast<double>(shape.count() / channels);
  EXPECT_EQ(far_apart(fast.dbeta.values, slow.dbeta.values, 1e-5, 1e-6 * rows), "");
  EXPECT_EQ(far_apart(fast.dgamma.values, slow.dgamma.values, 1e-5, 2e-6 * rows), "");
  // With one row inverse_std is 1 / sqrt(eps): what cancels in float64 leaves rounding times that.
  EXPECT_EQ(far_apart(fast.dx.values, slow.dx.values, 1e-5, rows < 4 ? 1e-3 : 2e-5), "");
  if (with_residual) {
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
        for (int options = 0; options < 8; ++options) {
          compare_with_float64(shape, threads, options & 1, options & 2,
                               options & 4 ? Write::kAdd : Write::kOverwrite);
        }
      }
    }
    for (const Shape& shape :
         {Shape{4, 23, 29, 16}, Shape{2500, 13}, Shape{20, 10, 10, 32}, Shape{600, 200}}) {
      SCOPED_TRACE(shape.to_string());
      for (int options = 0; options < 8; ++options) {
        compare_with_float64(shape, threads, options & 1, options & 2,
                             options & 4 ? Write::kAdd : Write::kOverwrite);
      }
    }
  });
}

// A mean of 10^4 with a deviation of 0.01 leaves float32 about ten steps of variation: the sums
// must not lose them.
TEST(BatchNorm, StatisticsDoNotCancel) {
  for_each_setting([](int threads) {
    for (std::int64_t channels : {1, 5, 16, 33}) {
      Operand<float> x = random_operand({20'000, channels}, 3);
      for (float& value : x.values) value = 1e4f + 0.01f * value;
      for (std::int64_t c = 0; c < channels; ++c)
        x.values[static_cast<std::size_t>(c)] = 1e4f + 0.5f;  // an outlier as first row
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
    Operand<float> x({0, 2, 2, 3}, 0), dx = x, mean = random_operand({3}, 1),
                                       inverse_std = random_operand({3}, 2);
    Operand<float> running_mean = random_operand({3}, 3), running_var = random_operand({3}, 4);
    const Operand<float> before_mean = running_mean, before_var = running_var;
    Operand<double> sums({2, 3}, 5);
    Context c(threads, batch_norm_scratch_bytes(0, 3, DType::kF32, threads));
    batch_norm_statistics(c.context, x.view(), sums.view());
    EXPECT_EQ(sums.values, std::vector<double>(6, 0.0));
    batch_norm_finish_statistics(c.context, {.sums = sums.view(),
                                             .rows = 0,
                                             .eps = 1e-5,
                                             .momentum = 0.1,
                                             .mean = mean.view(),
                                             .inverse_std = inverse_std.view(),
                                             .running_mean = running_mean.view(),
                                             .running_var = running_var.view()});
    EXPECT_EQ(mean.values, std::vector<float>(3, 0.f));
    EXPECT_EQ(far_apart(inverse_std.values, std::vector<double>(3, 1 / std::sqrt(1e-5)), 1e-6, 0),
              "");
    EXPECT_EQ(running_mean.values, before_mean.values);
    EXPECT_EQ(running_var.values, before_var.values);
    sums.values.assign(6, 5);
    batch_norm_backward_sums(c.context, {.x = x.view(),
                                         .dy = x.view(),
                                         .mean = mean.view(),
                                         .inverse_std = inverse_std.view(),
                                         .sums = sums.view()});
    EXPECT_EQ(sums.values, std::vector<double>(6, 0.0));
    batch_norm_backward_data(c.context, {.x = x.view(),
                                         .dy = x.view(),
                                         .mean = mean.view(),
                                         .inverse_std = inverse_std.view(),
                                         .gamma = mean.view(),
                                         .sums = sums.view(),
                                         .rows = 0,
                                         .dx = dx.view()});
  });
}

// What synchronized statistics rely on: the phases on two pieces of the rows, with merged sums, do
// what they do on the whole.
TEST(BatchNorm, PiecesWithMergedSumsEqualTheWhole) {
  const std::int64_t channels = 6, rows = 50, cut = 17;
  BatchNormCase<double> whole;
  whole.x = widen(random_operand({rows, channels}, 1));
  whole.gamma = widen(random_operand({channels}, 2));
  whole.beta = widen(random_operand({channels}, 3));
  whole.dy = widen(random_operand({rows, channels}, 4));
  whole.dx = Operand<double>({rows, channels}, 0);
  whole.run(1, true, false, Write::kOverwrite);

  Context c(1, 0);
  std::vector<double> dx;
  Operand<double> total({2, channels}, 0), backward({2, channels}, 0), mean({channels}, 0),
      inverse_std = mean;
  struct Piece {
    Operand<double> x, y, dy, dx, sums;
  } pieces[2];
  for (int p = 0; p < 2; ++p) {
    const std::int64_t first = p == 0 ? 0 : cut, last = p == 0 ? cut : rows;
    const Shape shape{last - first, channels};
    const auto slice = [&](const Operand<double>& from) {
      return operand_of<double>(
          shape, {from.values.begin() + first * channels, from.values.begin() + last * channels});
    };
    pieces[p] = {slice(whole.x), Operand<double>(shape, 0), slice(whole.dy),
                 Operand<double>(shape, 0), Operand<double>({2, channels}, 0)};
    batch_norm_statistics(c.context, pieces[p].x.view(), pieces[p].sums.view());
  }
  for (std::size_t k = 0; k < channels;
       ++k) {  // mean of means by rows; squares plus what the means' distance adds
    const double n0 = cut, n1 = rows - cut, m0 = pieces[0].sums.values[k],
                 m1 = pieces[1].sums.values[k];
    total.values[k] = (n0 * m0 + n1 * m1) / rows;
    total.values[channels + k] = pieces[0].sums.values[channels + k] +
                                 pieces[1].sums.values[channels + k] +
                                 (m1 - m0) * (m1 - m0) * n0 * n1 / rows;
  }
  batch_norm_finish_statistics(c.context, {.sums = total.view(),
                                           .rows = rows,
                                           .eps = 1e-5,
                                           .momentum = 0.1,
                                           .mean = mean.view(),
                                           .inverse_std = inverse_std.view()});
  for (Piece& piece : pieces) {
    batch_norm_normalize(c.context, {.x = piece.x.view(),
                                     .mean = mean.view(),
                                     .inverse_std = inverse_std.view(),
                                     .gamma = whole.gamma.view(),
                                     .beta = whole.beta.view(),
                                     .relu = true,
                                     .y = piece.y.view()});
    batch_norm_backward_sums(c.context, {.x = piece.x.view(),
                                         .y = piece.y.view(),
                                         .dy = piece.dy.view(),
                                         .mean = mean.view(),
                                         .inverse_std = inverse_std.view(),
                                         .sums = piece.sums.view()});
    for (std::size_t k = 0; k < 2 * channels; ++k) backward.values[k] += piece.sums.values[k];
  }
  for (Piece& piece : pieces) {
    batch_norm_backward_data(c.context, {.x = piece.x.view(),
                                         .y = piece.y.view(),
                                         .dy = piece.dy.view(),
                                         .mean = mean.view(),
                                         .inverse_std = inverse_std.view(),
                                         .gamma = whole.gamma.view(),
                                         .sums = backward.view(),
                                         .rows = rows,
                                         .dx = piece.dx.view()});
    dx.insert(dx.end(), piece.dx.values.begin(), piece.dx.values.end());
  }
  EXPECT_EQ(far_apart(total.values, whole.sums.values, 1e-13, 1e-13), "");
  EXPECT_EQ(far_apart(dx, whole.dx.values, 1e-12, 1e-13), "");
}

TEST(BatchNorm, ANanStaysInItsChannel) {
  for_each_setting([](int threads) {
    Operand<float> x = random_operand({40, 9}, 1);
    x.values[9 * 20 + 4] = std::nanf("");
    Operand<double> sums({2, 9}, 0);
    Context c(threads, batch_norm_scratch_bytes(40, 9, DType::kF32, threads));
    batch_norm_statistics(c.context, x.view(), sums.view());
    for (std::size_t i = 0; i < sums.values.size(); ++i)
      EXPECT_EQ(std::isnan(sums.values[i]), i % 9 == 4) << i;
    // A ReLU does not hide it.
    Operand<float> zeros({9}, 0), ones({9}, 1), y({40, 9}, 0);
    batch_norm_normalize(c.context, {.x = x.view(),
                                     .mean = zeros.view(),
                                     .inverse_std = ones.view(),
                                     .gamma = ones.view(),
                                     .beta = zeros.view(),
                                     .relu = true,
                                     .y = y.view()});
    EXPECT_TRUE(std::isnan(y.values[9 * 20 + 4]));
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
  Context c(1, batch_norm_scratch_bytes(4, 3, DType::kF32, 1));
  Operand<float> x({4, 3}, 0), four({4}, 0), three({3}, 0);
  Operand<double> sums({2, 4}, 0), wide({4, 3}, 0);
  EXPECT_THROW(batch_norm_statistics(c.context, x.view(), sums.view()), ShapeError);
  EXPECT_THROW(batch_norm_normalize(c.context, {.x = x.view(),
                                                .mean = three.view(),
                                                .inverse_std = three.view(),
                                                .gamma = four.view(),
                                                .beta = three.view(),
                                                .y = x.view()}),
               ShapeError);
  EXPECT_THROW(batch_norm_normalize(c.context, {.x = x.view(),
                                                .mean = three.view(),
                                                .inverse_std = three.view(),
                                                .gamma = three.view(),
                                                .beta = three.view(),
                                                .y = wide.view()}),
               ShapeError);
  Context bare(1, 0);
  sums = Operand<double>({2, 3}, 0);
  EXPECT_THROW(batch_norm_statistics(bare.context, x.view(), sums.view()), Error);
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
