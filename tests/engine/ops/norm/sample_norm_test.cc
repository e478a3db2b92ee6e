// Normalization by layer and by group: PyTorch's numbers, the fast kernels against the float64
// loops at odd sizes, and what holds between the two.
#include <gtest/gtest.h>

#include "tests/engine/ops/norm/norm_cases.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

// layer_norm and its gradients of torch 2 in float64.
TEST(LayerNorm, IsPyTorchs) {
  const Shape shape{2, 3}, vector{3};
  SampleNorm<Operand<double>> c{};
  c.x = operand_of<double>(shape, {3.125, -0.625, -4.375, 1.125, -2.125, -2.75});
  c.gamma = operand_of<double>(vector, {0.5, 1, 2});
  c.beta = operand_of<double>(vector, {0.1, -0.2, 0.3});
  c.dy = operand_of<double>(shape, {1, -2, 0.5, 0.25, 1, -1});
  c.y = c.dx = Operand<double>(shape, 0);
  c.dgamma = c.dbeta = Operand<double>(vector, 0);
  c.statistics = Operand<double>({2, 2}, 0);
  Context context(1, 0);
  c.forward(context.context);
  c.backward(context.context, Write::kOverwrite);
  EXPECT_EQ(
      far_apart(c.y.values,
                std::vector<double>{0.7123721090974234, -0.2, -2.149488436389694,
                                    0.7990827689228772, -0.7151136192063305, -1.4661038372788477},
                1e-13, 1e-15),
      "");
  EXPECT_EQ(
      far_apart(c.dx.values,
                std::vector<double>{0.29938183291035547, -0.5987638400063696, 0.29938200709601404,
                                    -0.14588994351219253, 0.9045255557725919, -0.7586356122603992},
                1e-12, 1e-14),
      "");
  EXPECT_EQ(
      far_apart(c.dgamma.values,
                std::vector<double>{1.5742856026562855, -0.5151136192063306, 0.27067980954200044},
                1e-13, 1e-15),
      "");
  EXPECT_EQ(far_apart(c.dbeta.values, std::vector<double>{1.25, -1.0, -0.5}, 1e-13, 1e-15), "");
}

// The numbers of torch.nn.functional.group_norm(x, 2, weight, bias, eps=1e-5), made from its
// documented definition with 60 decimal digits; the gradients are central differences of that.
TEST(GroupNorm, FollowsPyTorchsDefinition) {
  const Shape shape{2, 3, 1, 4}, vector{4};
  SampleNorm<Operand<double>> c{};
  c.groups = 2;
  c.x = operand_of<double>(shape,
                           {1,  -2, 0.5,   3, 2,   0.25,  -1,  4,     0.75, 1.5,  -0.5, 2.5,
                            -3, 1,  0.125, 2, 0.5, -1.25, 3.5, -0.75, 1.75, 2.25, -2.5, 0.375});
  c.dy = operand_of<double>(shape,
                            {1,  2,    -1,  0.5,   0.25, 3,  2,   -2,    1,     1,    -0.5, 4,
                             -1, 0.75, 0.5, -0.25, 2,    -3, 1.5, 0.125, -0.75, 1.25, -2,   0.5});
  c.gamma = operand_of<double>(vector, {1.5, -0.5, 2, 0.75});
  c.beta = operand_of<double>(vector, {0.25, 0.1, -0.3, 1});
  c.y = c.dx = Operand<double>(shape, 0);
  c.dgamma = c.dbeta = Operand<double>(vector, 0);
  c.statistics = Operand<double>({2, 2, 2}, 0);
  Context context(1, 0);
  c.forward(context.context);
  c.backward(context.context, Write::kOverwrite);
  const double near = 1e-13;
  EXPECT_EQ(
      far_apart(
          c.y.values,
          std::vector<double>{
              0.73820692673550026, 1.1089609819200339,   -1.2868334392189404,  1.6391989322213592,
              1.909903550900701,   0.23018851379613342,  -2.9016517943044793,  2.042903520992744,
              0.44528277069420014, -0.25801841293936689, -2.3633790092759663,  1.4373466378356667,
              -2.407451475458366,  -0.11857825988618596, -0.64848499738701559, 1.6044036673431052,
              0.49158649776894237, 0.50264416294823733,  2.8799256011565175,   0.52627820667702563,
              1.5269572024929812,  -0.46370182812753225, -3.3928043518097635,  0.96732953149496725},
          near, near),
      "");
  EXPECT_EQ(far_apart(c.dx.values,
                      std::vector<double>{
                          0.98944731014747678,  -0.002694323116472505, -1.4761883338360262,
                          0.18871967865988604,  -0.20955384920244102,  -1.1137744197634116,
                          1.5215422875031352,   -0.66593773404729817,  1.069504482953981,
                          -0.73292920101913284, -1.0925196080287907,   1.5243837097490938,
                          -0.89147487496867561, -0.29188427102281694,  0.65844588783773927,
                          -0.86353750639782823, 1.5744869748415233,    0.75565433182603947,
                          0.081660793246883454, 0.6053048577467397,    -0.71008851895403835,
                          -0.4366936417220319,  -0.69344930286895357,  0.21157527043541935},
                      near, near),
            "");
  EXPECT_EQ(far_apart(c.dgamma.values,
                      std::vector<double>{2.1875814361875938, 0.052048753259330817,
                                          3.7982369809543801, -0.32462986638107394},
                      near, near),
            "");
  EXPECT_EQ(far_apart(c.dbeta.values, std::vector<double>{2.5, 5, 0.5, 2.875}, near, near), "");
}

const SampleNormSetting kSettings[] = {{{0, 8}},
                                       {{1, 1}},
                                       {{3, 7}},
                                       {{5, 16}},
                                       {{4, 33}},
                                       {{2, 9, 128}},
                                       {{130, 100}},
                                       {{7, 1030}},
                                       {{0, 3, 3, 8}, 2},
                                       {{1, 1, 1, 2}, 1},
                                       {{2, 5, 7, 6}, 3},
                                       {{3, 4, 4, 16}, 4},
                                       {{2, 9, 9, 33}, 11},
                                       {{2, 3, 3, 40}, 1},
                                       {{3, 2, 2, 12}, 12},
                                       {{1, 12, 12, 64}, 32},
                                       {{5, 7, 130}, 10}};

std::size_t scratch_bytes(const SampleNormSetting& setting) {
  return setting.groups == 0 ? 0 : group_norm_scratch_bytes(setting.shape, DType::kF32);
}

// Calls check(setting, write, threads) for all of them.
template <class Check>
void for_each_sample_norm(Check check) {
  for_each_setting([&](int threads) {
    for (const SampleNormSetting& setting : kSettings)
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(setting.shape.to_string() + ", groups " + std::to_string(setting.groups));
        check(setting, write, threads);
      }
  });
}

TEST(SampleNorm, Float32AgreesWithFloat64AndDoesNotDependOnThreads) {
  std::vector<std::vector<float>> first, found;
  for_each_sample_norm([&](const SampleNormSetting& setting, Write write, int threads) {
    const bool groups = setting.groups > 0;
    SampleNorm<Operand<float>> fast = sample_norm(setting, write);
    SampleNorm<Operand<double>> slow = fast.as(widen, widen);
    Context c(threads, scratch_bytes(setting));
    fast.forward(c.context);
    slow.forward(c.context);
    const bool one_value = fast.gamma.values.size() == 1;  // its deviation is rounding alone
    EXPECT_EQ(far_apart(fast.y.values, slow.y.values, 1e-5, groups ? 1e-5 : 5e-6), "");
    if (!one_value) {
      EXPECT_EQ(far_apart(fast.statistics.values, slow.statistics.values, 5e-6, 1e-6), "");
    }
    slow.statistics = widen(fast.statistics);
    fast.backward(c.context, write);
    slow.backward(c.context, write);
    if (!one_value) {
      EXPECT_EQ(far_apart(fast.dx.values, slow.dx.values, 1e-5, groups ? 2e-5 : 1e-5), "");
    }
    const double each = groups ? 1e-7 * static_cast<double>(setting.shape.count()) : 0;
    EXPECT_EQ(far_apart(fast.dgamma.values, slow.dgamma.values, 1e-5, groups ? each + 1e-5 : 2e-5),
              "");
    EXPECT_EQ(far_apart(fast.dbeta.values, slow.dbeta.values, 1e-5, each + 1e-5), "");
    found.insert(found.end(), {fast.y.values, fast.dx.values, fast.dgamma.values});
    if (found.size() < 3 * 2 * std::size(kSettings)) return;
    if (threads == 1) first = found;
    EXPECT_EQ(found, first);
    found.clear();
  });
}

TEST(SampleNorm, InPlaceAndWithoutWhatIsNotWanted) {
  for_each_sample_norm([](const SampleNormSetting& setting, Write write, int threads) {
    if (write == Write::kAdd) return;
    SampleNorm<Operand<float>> a = sample_norm(setting, write), b = a;
    Context c(threads, scratch_bytes(setting));
    a.forward(c.context);
    a.backward(c.context, write);
    b.forward(c.context, b.y.view(), {});
    EXPECT_EQ(b.y.values, a.y.values);
    b.statistics = a.statistics;
    if (setting.groups > 0) {
      b.backward(c.context, write, {});
      EXPECT_EQ(b.dgamma.values, a.dgamma.values);
      b.backward(c.context, write, b.dy.view());
    } else {
      b.backward_parameters(c.context, write);
      EXPECT_EQ(b.dgamma.values, a.dgamma.values);
      EXPECT_EQ(b.dbeta.values, a.dbeta.values);
      b.backward_data(c.context, write, b.dy.view());
    }
    EXPECT_EQ(b.dy.values, a.dx.values);
    b.forward(c.context, b.x.view(), {});
    EXPECT_EQ(b.x.values, a.y.values);
  });
}

// One group of one place is a row of layer normalization.
TEST(SampleNorm, OfOneGroupAndOnePlaceIsLayerNorm) {
  SampleNorm<Operand<double>> group = sample_norm({{6, 10}, 1}, Write::kOverwrite).as(widen, widen);
  SampleNorm<Operand<double>> layer = sample_norm({{6, 10}}, Write::kOverwrite).as(widen, widen);
  Context context(1, 0);
  group.forward(context.context);
  layer.forward(context.context);
  EXPECT_EQ(far_apart(group.y.values, layer.y.values, 1e-14, 1e-15), "");
}

TEST(SampleNorm, RefusesShapesThatDoNotFit) {
  const Shape shape{2, 3, 3, 8};
  Context context(1, group_norm_scratch_bytes(shape, DType::kF32)), bare(1, 0);
  for (const std::int64_t groups : {3, 0}) {  // no divisor; none
    SampleNorm<Operand<float>> c = sample_norm({shape, 4}, Write::kOverwrite);
    EXPECT_THROW(
        group_norm_forward(context.context, {c.x.view(), c.gamma.view(), c.beta.view(), groups,
                                             kNormEps, c.y.view(), c.statistics.view()}),
        ShapeError);
  }
  for (const std::int64_t groups : {0, 4}) {
    SampleNorm<Operand<float>> c = sample_norm({shape, groups}, Write::kOverwrite);
    c.statistics = Operand<float>({2, 2, 3}, 0);
    EXPECT_THROW(c.forward(context.context), ShapeError);
    c = sample_norm({shape, groups}, Write::kOverwrite);
    c.forward(context.context);
    if (groups > 0) {
      EXPECT_THROW(c.forward(bare.context), Error);
    }
    c.gamma = Operand<float>({4}, 0);
    EXPECT_THROW(c.forward(context.context), ShapeError);
    EXPECT_THROW(c.backward(context.context, Write::kOverwrite), ShapeError);
  }
  SampleNorm<Operand<float>> flat = sample_norm({{2, 3}}, Write::kOverwrite);
  flat.x = flat.y = Operand<float>({3}, 0);
  EXPECT_THROW(flat.forward(context.context, flat.y.view(), {}), ShapeError);
}

}  // namespace
}  // namespace engine::ops
