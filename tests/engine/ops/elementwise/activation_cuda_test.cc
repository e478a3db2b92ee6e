// Activation functions on a CUDA device against the float64 definition, for every storage: odd
// sizes, any alignment, outputs over inputs; meeting points, large numbers and NaN.
#include "engine/ops/elementwise/activation.h"

#include "tests/engine/ops/device/device_runs.h"
#include "tests/engine/ops/elementwise/elementwise_cases.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class ActivationCuda : public CudaTest {};
TYPED_TEST_SUITE(ActivationCuda, Storages);

TYPED_TEST(ActivationCuda, AgreesWithTheDefinition) {
  for (const Shape& shape : {Shape{0, 7}, Shape{1}, Shape{3, 65}, Shape{7, 8, 129}})
    for (const Activation& f : all_activations())
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(activation_name(f) + " of " + shape.to_string());
        Operand<float> x = random_operand(shape, 1);
        for (float& value : x.values) value *= 5;
        const Operand<float> dy = random_operand(shape, 2);
        std::vector<StateOf<TypeParam>> aligned;
        for (const std::int64_t shift : {0, 3}) {
          const Given operands[] = {x, dy, nothing(shape), output(shape, write), x, dy};
          const auto [found, expected] = run_on_device<TypeParam>(
              operands,
              [&](KernelContext& c, TensorView from, TensorView slopes, TensorView y, TensorView dx,
                  TensorView same_x, TensorView same_dy) {
                activation_forward(c, from, f, y);
                activation_backward(c, from, slopes, f, dx, write);
                activation_forward(c, same_x, f, same_x);
                activation_backward(c, from, same_dy, f, same_dy, Write::kOverwrite);
              },
              shift);
          EXPECT_LE(relative_error(found[2], expected[2], 0.01), storage_error<TypeParam>());
          EXPECT_LE(relative_error(found[3], expected[3], 0.01), storage_error<TypeParam>());
          EXPECT_EQ(found[4], found[2]);
          if (write == Write::kOverwrite) {
            EXPECT_EQ(found[5], found[3]);
          }
          if (shift == 0) aligned = found[2];
          EXPECT_EQ(found[2], aligned);  // addresses need not be aligned
        }
      }
}

// More elements than the largest grid has threads.
TYPED_TEST(ActivationCuda, LoopsPastTheGrid) {
  const std::int64_t count = 132 * 16 * 256 + 1000;
  Operand<float> x = random_operand({count}, 1);
  const Shifted<TypeParam> y(x.shape, x.values, 1);
  DeviceContext c;
  activation_forward(c.context, y.view(), {ActivationKind::kLeakyRelu, 2}, y.view());
  c.finish();
  std::vector<double> expected = kept<TypeParam>(x).values;
  for (double& value : expected)
    if (value < 0) value *= 2;
  EXPECT_LE(relative_error(y.values(), expected), 0);
}

class ActivationCudaRange : public CudaTest {};

// Values and derivatives of a device for these inputs, in f32.
std::pair<std::vector<float>, std::vector<float>> on_device(const Activation& f,
                                                            const std::vector<float>& at) {
  const Shape shape{static_cast<std::int64_t>(at.size())};
  DeviceContext c;
  const auto x = to_device<float>(shape, at), y = to_device<float>(shape, at),
             dx = to_device<float>(shape, std::vector<float>(at.size(), 1));
  activation_forward(c.context, x.view(), f, y.view());
  activation_backward(c.context, uses_output(f.kind) ? y.view() : x.view(), dx.view(), f, dx.view(),
                      Write::kOverwrite);
  c.finish();
  return {y.values(), dx.values()};
}

// PyTorch 2 takes the smaller of the two derivatives for relu6 and hard_sigmoid.
TEST_F(ActivationCudaRange, MeetingPointsHavePyTorchsDerivatives) {
  const auto slopes = [](ActivationKind kind, const std::vector<float>& at) {
    return on_device({kind}, at).second;
  };
  EXPECT_EQ(slopes(ActivationKind::kRelu6, {0, 6, 5.9999995F}), (std::vector<float>{0, 0, 1}));
  EXPECT_EQ(slopes(ActivationKind::kHardSigmoid, {-3, 3, 0}), (std::vector<float>{0, 0, 1.F / 6}));
  EXPECT_EQ(slopes(ActivationKind::kHardSwish, {-3, 3, 0}), (std::vector<float>{0, 1, 0.5F}));
  EXPECT_EQ(slopes(ActivationKind::kLeakyRelu, {0, -0.F, 1e-30F}),
            (std::vector<float>{0.01F, 0.01F, 1}));
}

// As on the CPU (activation_test.cc): within 1e-6 of the definition over the whole range.
TEST_F(ActivationCudaRange, AgreesWithTheDefinitionEverywhere) {
  std::vector<float> at{-1e18f, -1e4f, -89, -80, -1e-30f, -0.f, 0, 1e-30f, 1e-4f, 80, 1e4f, 1e18f};
  for (int i = -400; i <= 400; ++i) at.push_back(static_cast<float>(i) * 0.05f);
  Operand<double> x = widen(operand_of<float>({static_cast<std::int64_t>(at.size())}, at)),
                  y(x.shape, 0), dy(x.shape, 1), dx(x.shape, 0);
  Context host(1, 0);
  for (const Activation& f : all_activations()) {
    activation_forward(host.context, x.view(), f, y.view());
    activation_backward(host.context, uses_output(f.kind) ? y.view() : x.view(), dy.view(), f,
                        dx.view(), Write::kOverwrite);
    const auto [values, slopes] = on_device(f, at);
    for (std::size_t i = 0; i < at.size(); ++i) {
      const double size = std::fabs(
          f.kind == ActivationKind::kSilu || f.kind == ActivationKind::kMish ? x.values[i]
                                                                             : y.values[i]);
      ASSERT_LE(std::fabs(values[i] - y.values[i]), 1e-6 * size + 1e-38)
          << activation_name(f) << " of " << at[i];
      ASSERT_LE(std::fabs(slopes[i] - dx.values[i]), 2e-6) << activation_name(f) << " of " << at[i];
    }
  }
}

TEST_F(ActivationCudaRange, SteepOnesAgreeWithTheDefinition) {
  std::vector<float> at{1e-12f, 1e-4f, 80, 1e4f, 1e12f};
  for (int i = 1; i <= 200; ++i) at.push_back(static_cast<float>(i) * 0.05f);
  Operand<double> x = widen(operand_of<float>({static_cast<std::int64_t>(at.size())}, at)),
                  y(x.shape, 0), dy(x.shape, 1), dx(x.shape, 0);
  Context host(1, 0);
  for (const Activation& f : steep_activations()) {
    activation_forward(host.context, x.view(), f, y.view());
    activation_backward(host.context, uses_output(f.kind) ? y.view() : x.view(), dy.view(), f,
                        dx.view(), Write::kOverwrite);
    const auto [values, slopes] = on_device(f, at);
    const double least = f.kind == ActivationKind::kLog ? 1 : 0;
    for (std::size_t i = 0; i < at.size(); ++i) {
      if (y.values[i] > 3e38 || std::fabs(dx.values[i]) > 3e38) continue;
      ASSERT_LE(std::fabs(values[i] - y.values[i]),
                1e-6 * std::fmax(least, std::fabs(y.values[i])) + 1e-38)
          << activation_name(f) << " of " << at[i];
      ASSERT_LE(std::fabs(slopes[i] - dx.values[i]), 2e-6 * std::fabs(dx.values[i]) + 1e-38)
          << activation_name(f) << " of " << at[i];
    }
  }
}

TEST_F(ActivationCudaRange, PassesANanOn) {
  for (const Activation& f : all_activations())
    for (const float value : on_device(f, std::vector<float>(19, std::nanf(""))).first)
      EXPECT_TRUE(std::isnan(value)) << activation_name(f);
}

}  // namespace
}  // namespace engine::ops
