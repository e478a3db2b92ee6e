// Group normalization: PyTorch's definition, the fast kernels against the float64 loops at odd
// sizes, and what holds between it and layer normalization.
#include "engine/ops/norm/group_norm.h"

#include <gtest/gtest.h>

#include "engine/ops/norm/layer_norm.h"
#include "tests/engine/ops/common/kernel_test_support.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

// All operands of a call of each, in one dtype.
template <class T>
struct GroupNormCase {
  Operand<T> x, gamma, beta, dy, y, dx, dgamma, dbeta, statistics;
  std::int64_t groups;

  void forward(KernelContext& context, bool training = true) {
    group_norm_forward(context, {.x = x.view(),
                                 .gamma = gamma.view(),
                                 .beta = beta.view(),
                                 .groups = groups,
                                 .eps = 1e-5,
                                 .y = y.view(),
                                 .statistics = training ? statistics.view() : TensorView{}});
  }
  void backward(KernelContext& context, Write write) {
    group_norm_backward(context, {.x = x.view(),
                                  .gamma = gamma.view(),
                                  .statistics = statistics.view(),
                                  .dy = dy.view(),
                                  .dgamma = dgamma.view(),
                                  .dbeta = dbeta.view(),
                                  .parameter_write = write,
                                  .dx = dx.view(),
                                  .dx_write = write});
  }
};

// The numbers of torch.nn.functional.group_norm(x, 2, weight, bias, eps=1e-5), made from its
// documented definition with 60 decimal digits; the gradients are central differences of that.
TEST(GroupNorm, FollowsPyTorchsDefinition) {
  const Shape shape{2, 3, 1, 4}, vector{4};
  GroupNormCase<double> c;
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

struct GroupNormSetting {
  Shape shape;
  std::int64_t groups;
};
const GroupNormSetting kSettings[] = {
    {{0, 3, 3, 8}, 2},   {{1, 1, 1, 2}, 1},     {{2, 5, 7, 6}, 3},
    {{3, 4, 4, 16}, 4},  {{2, 9, 9, 33}, 11},   {{2, 3, 3, 40}, 1},
    {{3, 2, 2, 12}, 12}, {{1, 12, 12, 64}, 32}, {{5, 7, 130}, 10}};

GroupNormCase<float> random_case(const GroupNormSetting& setting, Write write) {
  const Shape& shape = setting.shape;
  const Shape vector{shape[shape.rank() - 1]};
  GroupNormCase<float> c;
  c.groups = setting.groups;
  c.x = random_operand(shape, 1);
  for (float& value : c.x.values) value = value * 3 + 5;  // far from mean 0
  c.gamma = random_operand(vector, 2);
  c.beta = random_operand(vector, 3);
  c.dy = random_operand(shape, 4);
  c.y = gemm_test::nan_operand(shape);
  c.dx = output(shape, write);
  c.dgamma = c.dbeta = output(vector, write);
  c.statistics = gemm_test::nan_operand({2, shape[0], setting.groups});
  return c;
}

TEST(GroupNorm, Float32AgreesWithFloat64AndDoesNotDependOnThreads) {
  std::vector<std::vector<float>> first;
  for_each_setting([&](int threads) {
    std::vector<std::vector<float>> found;
    for (const GroupNormSetting& setting : kSettings)
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(setting.shape.to_string());
        GroupNormCase<float> fast = random_case(setting, write);
        GroupNormCase<double> slow{widen(fast.x),      widen(fast.gamma), widen(fast.beta),
                                   widen(fast.dy),     widen(fast.y),     widen(fast.dx),
                                   widen(fast.dgamma), widen(fast.dbeta), widen(fast.statistics),
                                   setting.groups};
        Context c(threads, group_norm_scratch_bytes(setting.shape, DType::kF32));
        fast.forward(c.context);
        slow.forward(c.context);
        EXPECT_EQ(far_apart(fast.y.values, slow.y.values, 1e-5, 1e-5), "");
        EXPECT_EQ(far_apart(fast.statistics.values, slow.statistics.values, 5e-6, 1e-6), "");
        fast.backward(c.context, write);
        slow.backward(c.context, write);
        const double values = static_cast<double>(setting.shape.count());
        EXPECT_EQ(far_apart(fast.dx.values, slow.dx.values, 1e-5, 2e-5), "");
        EXPECT_EQ(far_apart(fast.dgamma.values, slow.dgamma.values, 1e-5, 1e-7 * values + 1e-5),
                  "");
        EXPECT_EQ(far_apart(fast.dbeta.values, slow.dbeta.values, 1e-5, 1e-7 * values + 1e-5), "");
        found.insert(found.end(), {fast.y.values, fast.dx.values, fast.dgamma.values});
      }
    if (threads == 1) first = found;
    EXPECT_EQ(found, first);
  });
}

TEST(GroupNorm, InPlaceAndWithoutWhatIsNotWanted) {
  for_each_setting([](int threads) {
    for (const GroupNormSetting& setting : kSettings) {
      GroupNormCase<float> a = random_case(setting, Write::kOverwrite), b = a;
      Context c(threads, group_norm_scratch_bytes(setting.shape, DType::kF32));
      a.forward(c.context);
      a.backward(c.context, Write::kOverwrite);
      b.forward(c.context, false);
      EXPECT_EQ(b.y.values, a.y.values);
      const GroupNormBackward alone{.x = a.x.view(),
                                    .gamma = a.gamma.view(),
                                    .statistics = a.statistics.view(),
                                    .dy = b.dy.view(),
                                    .dgamma = b.dgamma.view(),
                                    .dbeta = b.dbeta.view()};
      group_norm_backward(c.context, alone);
      EXPECT_EQ(b.dgamma.values, a.dgamma.values);
      GroupNormBackward over = alone;
      over.dx = b.dy.view();
      group_norm_backward(c.context, over);
      EXPECT_EQ(b.dy.values, a.dx.values);
      GroupNormForward same{.x = b.x.view(),
                            .gamma = b.gamma.view(),
                            .beta = b.beta.view(),
                            .groups = setting.groups,
                            .eps = 1e-5,
                            .y = b.x.view()};
      group_norm_forward(c.context, same);
      EXPECT_EQ(b.x.values, a.y.values);
    }
  });
}

// One group of one place is a row of layer normalization.
TEST(GroupNorm, OfOneGroupAndOnePlaceIsLayerNorm) {
  GroupNormCase<double> c;
  c.groups = 1;
  c.x = widen(random_operand({6, 10}, 1));
  c.gamma = widen(random_operand({10}, 2));
  c.beta = widen(random_operand({10}, 3));
  c.y = Operand<double>({6, 10}, 0);
  c.statistics = Operand<double>({2, 6, 1}, 0);
  Operand<double> y = c.y;
  Context context(1, 0);
  c.forward(context.context);
  layer_norm_forward(context.context, {.x = c.x.view(),
                                       .gamma = c.gamma.view(),
                                       .beta = c.beta.view(),
                                       .eps = 1e-5,
                                       .y = y.view()});
  EXPECT_EQ(far_apart(c.y.values, y.values, 1e-14, 1e-15), "");
}

TEST(GroupNorm, RefusesShapesThatDoNotFit) {
  const GroupNormSetting setting{{2, 3, 3, 8}, 3};
  GroupNormCase<float> c = random_case(setting, Write::kOverwrite);
  Context context(1, group_norm_scratch_bytes(setting.shape, DType::kF32)), bare(1, 0);
  EXPECT_THROW(c.forward(context.context), ShapeError);
  c.groups = 0;
  EXPECT_THROW(c.forward(context.context), ShapeError);
  c.groups = 4;  // statistics are of 3
  EXPECT_THROW(c.forward(context.context), ShapeError);
  c.statistics = Operand<float>({2, 2, 4}, 0);
  c.forward(context.context);
  EXPECT_THROW(c.forward(bare.context), Error);
  c.gamma = Operand<float>({4}, 0);
  EXPECT_THROW(c.backward(context.context, Write::kOverwrite), ShapeError);
}

}  // namespace
}  // namespace engine::ops
