// Layer normalization: PyTorch's numbers, and the fast kernels against the float64 loops at odd
// sizes.
#include "engine/ops/norm/layer_norm.h"

#include <gtest/gtest.h>

#include "tests/engine/ops/common/kernel_test_support.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

// layer_norm and its gradients of torch 2 in float64.
TEST(LayerNorm, IsPyTorchs) {
  Operand<double> x = operand_of<double>({2, 3}, {3.125, -0.625, -4.375, 1.125, -2.125, -2.75});
  Operand<double> gamma = operand_of<double>({3}, {0.5, 1, 2}),
                  beta = operand_of<double>({3}, {0.1, -0.2, 0.3});
  Operand<double> dy = operand_of<double>({2, 3}, {1, -2, 0.5, 0.25, 1, -1});
  Operand<double> y({2, 3}, 0), dx({2, 3}, 0), statistics({2, 2}, 0), dgamma({3}, 0), dbeta({3}, 0);
  Context c(1, 0);
  layer_norm_forward(c.context, {.x = x.view(),
                                 .gamma = gamma.view(),
                                 .beta = beta.view(),
                                 .eps = 1e-5,
                                 .y = y.view(),
                                 .statistics = statistics.view()});
  layer_norm_backward_data(c.context, {.x = x.view(),
                                       .gamma = gamma.view(),
                                       .statistics = statistics.view(),
                                       .dy = dy.view(),
                                       .dx = dx.view()});
  layer_norm_backward_parameters(c.context, {.x = x.view(),
                                             .statistics = statistics.view(),
                                             .dy = dy.view(),
                                             .dgamma = dgamma.view(),
                                             .dbeta = dbeta.view()});
  EXPECT_EQ(
      far_apart(y.values,
                std::vector<double>{0.7123721090974234, -0.2, -2.149488436389694,
                                    0.7990827689228772, -0.7151136192063305, -1.4661038372788477},
                1e-13, 1e-15),
      "");
  EXPECT_EQ(
      far_apart(dx.values,
                std::vector<double>{0.29938183291035547, -0.5987638400063696, 0.29938200709601404,
                                    -0.14588994351219253, 0.9045255557725919, -0.7586356122603992},
                1e-12, 1e-14),
      "");
  EXPECT_EQ(
      far_apart(dgamma.values,
                std::vector<double>{1.5742856026562855, -0.5151136192063306, 0.27067980954200044},
                1e-13, 1e-15),
      "");
  EXPECT_EQ(far_apart(dbeta.values, std::vector<double>{1.25, -1.0, -0.5}, 1e-13, 1e-15), "");
}

const Shape kShapes[] = {{0, 8},  {1, 1},      {3, 7},     {5, 16},
                         {4, 33}, {2, 9, 128}, {130, 100}, {7, 1030}};

struct LayerNormSetting {
  Operand<float> x, gamma, beta, dy;
  Operand<double> wide_x, wide_gamma, wide_beta, wide_dy;
  std::int64_t width, rows;

  explicit LayerNormSetting(const Shape& shape)
      : x(random_operand(shape, 1)), dy(random_operand(shape, 4)) {
    width = shape[shape.rank() - 1];
    rows = shape.count() / width;
    gamma = random_operand({width}, 2);
    beta = random_operand({width}, 3);
    for (float& value : x.values) value = value * 3 + 5;  // far from mean 0
    wide_x = widen(x), wide_gamma = widen(gamma), wide_beta = widen(beta), wide_dy = widen(dy);
  }
};

TEST(LayerNorm, Float32AgreesWithFloat64) {
  for_each_setting([](int threads) {
    Context c(threads, 0);
    for (const Shape& shape : kShapes) {
      LayerNormSetting s(shape);
      Operand<float> y = gemm_test::nan_operand(shape),
                     statistics = gemm_test::nan_operand({2, s.rows});
      Operand<double> wide_y(shape, 0), wide_statistics({2, s.rows}, 0);
      layer_norm_forward(c.context, {.x = s.x.view(),
                                     .gamma = s.gamma.view(),
                                     .beta = s.beta.view(),
                                     .eps = 1e-5,
                                     .y = y.view(),
                                     .statistics = statistics.view()});
      layer_norm_forward(c.context, {.x = s.wide_x.view(),
                                     .gamma = s.wide_gamma.view(),
                                     .beta = s.wide_beta.view(),
                                     .eps = 1e-5,
                                     .y = wide_y.view(),
                                     .statistics = wide_statistics.view()});
      EXPECT_EQ(far_apart(y.values, wide_y.values, 1e-5, 5e-6), "");
      if (s.width > 1) {
        EXPECT_EQ(far_apart(statistics.values, wide_statistics.values, 5e-6, 1e-6), "");
      }
      const std::vector<float> expected = y.values;
      layer_norm_forward(c.context, {.x = s.x.view(),
                                     .gamma = s.gamma.view(),
                                     .beta = s.beta.view(),
                                     .eps = 1e-5,
                                     .y = y.view()});
      EXPECT_EQ(y.values, expected);
      layer_norm_forward(c.context, {.x = s.x.view(),
                                     .gamma = s.gamma.view(),
                                     .beta = s.beta.view(),
                                     .eps = 1e-5,
                                     .y = s.x.view()});  // in place
      EXPECT_EQ(s.x.values, expected);
    }
  });
}

TEST(LayerNorm, GradientsOfFloat32AgreeWithFloat64AndDoNotDependOnThreads) {
  std::vector<std::vector<float>> first;
  for_each_setting([&](int threads) {
    std::vector<std::vector<float>> found;
    Context c(threads, 0);
    for (const Shape& shape : kShapes) {
      LayerNormSetting s(shape);
      Operand<double> wide_y(shape, 0), wide_statistics({2, s.rows}, 0);
      layer_norm_forward(c.context, {.x = s.wide_x.view(),
                                     .gamma = s.wide_gamma.view(),
                                     .beta = s.wide_beta.view(),
                                     .eps = 1e-5,
                                     .y = wide_y.view(),
                                     .statistics = wide_statistics.view()});
      Operand<float> statistics({2, s.rows}, 0);
      statistics.values.assign(wide_statistics.values.begin(), wide_statistics.values.end());
      wide_statistics = widen(statistics);
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        Operand<float> dx = output(shape, write), dgamma = output({s.width}, write),
                       dbeta = output({s.width}, write);
        Operand<double> wide_dx = widen(dx), wide_dgamma = widen(dgamma), wide_dbeta = widen(dbeta);
        layer_norm_backward_data(c.context, {.x = s.x.view(),
                                             .gamma = s.gamma.view(),
                                             .statistics = statistics.view(),
                                             .dy = s.dy.view(),
                                             .dx = dx.view(),
                                             .write = write});
        layer_norm_backward_data(c.context, {.x = s.wide_x.view(),
                                             .gamma = s.wide_gamma.view(),
                                             .statistics = wide_statistics.view(),
                                             .dy = s.wide_dy.view(),
                                             .dx = wide_dx.view(),
                                             .write = write});
        layer_norm_backward_parameters(c.context, {.x = s.x.view(),
                                                   .statistics = statistics.view(),
                                                   .dy = s.dy.view(),
                                                   .dgamma = dgamma.view(),
                                                   .dbeta = dbeta.view(),
                                                   .write = write});
        layer_norm_backward_parameters(c.context, {.x = s.wide_x.view(),
                                                   .statistics = wide_statistics.view(),
                                                   .dy = s.wide_dy.view(),
                                                   .dgamma = wide_dgamma.view(),
                                                   .dbeta = wide_dbeta.view(),
                                                   .write = write});
        if (s.width > 1) {
          EXPECT_EQ(far_apart(dx.values, wide_dx.values, 1e-5, 1e-5), "");
        }
        EXPECT_EQ(far_apart(dgamma.values, wide_dgamma.values, 1e-5, 2e-5), "");
        EXPECT_EQ(far_apart(dbeta.values, wide_dbeta.values, 1e-5, 1e-5), "");
        if (write == Write::kOverwrite) {
          Operand<float> dy = s.dy;
          layer_norm_backward_data(c.context, {.x = s.x.view(),
                                               .gamma = s.gamma.view(),
                                               .statistics = statistics.view(),
                                               .dy = dy.view(),
                                               .dx = dy.view(),
                                               .write = write});
          EXPECT_EQ(dy.values, dx.values);  // in place
        }
        found.push_back(dgamma.values);
      }
    }
    if (threads == 1) first = found;
    EXPECT_EQ(found, first);
  });
}

TEST(LayerNorm, RefusesShapesThatDoNotFit) {
  Context c(1, 0);
  Operand<float> x({2, 3}, 0), gamma({3}, 0), wrong({2}, 0), statistics({2, 3}, 0), flat({3}, 0);
  EXPECT_THROW(
      layer_norm_forward(
          c.context,
          {.x = x.view(), .gamma = wrong.view(), .beta = gamma.view(), .eps = 1e-5, .y = x.view()}),
      ShapeError);
  EXPECT_THROW(layer_norm_forward(c.context, {.x = x.view(),
                                              .gamma = gamma.view(),
                                              .beta = gamma.view(),
                                              .eps = 1e-5,
                                              .y = x.view(),
                                              .statistics = statistics.view()}),
               ShapeError);
  EXPECT_THROW(layer_norm_forward(c.context, {.x = flat.view(),
                                              .gamma = gamma.view(),
                                              .beta = gamma.view(),
                                              .eps = 1e-5,
                                              .y = flat.view()}),
               ShapeError);
}

}  // namespace
}  // namespace engine::ops
