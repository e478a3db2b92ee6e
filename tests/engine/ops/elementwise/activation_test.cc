// Activation functions: PyTorch's values and gradients, float32 against float64 over the whole
// range, aliasing, and activations stored in bf16.
#include "engine/ops/elementwise/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/engine/ops/common/kernel_runs.h"
#include "tests/engine/ops/common/stored_test_support.h"
#include "tests/engine/ops/elementwise/elementwise_cases.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

// Values and gradients of torch 2 in float64 at -4, -1.5, -0.3, 0.4, 2.5 and 7.
struct KnownActivation {
  const char* name;
  std::vector<double> values, slopes;
};
const KnownActivation kKnownActivations[] = {
    {"relu6", {0, 0, 0, 0.4, 2.5, 6}, {0, 0, 0, 1, 1, 0}},
    {"silu",
     {-0.07194483984836623, -0.2736382857095345, -0.1276672449565023, 0.2394750640449808,
      2.3103545499468914, 6.993622641639196},
     {-0.05266461489107291, -0.041294154299142946, 0.3522199896811173, 0.6947919584090636,
      1.0994011113415267, 1.0054604970664518}},
    {"sigmoid",
     {0.01798620996209156, 0.18242552380635635, 0.425557483188341, 0.598687660112452,
      0.9241418199787566, 0.9990889488055994},
     {0.017662706213291118, 0.14914645207033286, 0.24445831169074586, 0.24026074574152914,
      0.07010371654510807, 0.000910221180121784}},
    {"hard_sigmoid",
     {0, 0.25, 0.45, 0.5666666666666667, 0.9166666666666666, 1},
     {0, 1.0 / 6, 1.0 / 6, 1.0 / 6, 1.0 / 6, 0}},
    {"hard_swish",
     {0, -0.375, -0.135, 0.22666666666666668, 2.2916666666666665, 7},
     {0, 0, 0.4, 0.6333333333333333, 1.3333333333333335, 1}},
    {"leaky_relu", {-0.8, -0.3, -0.06, 0.4, 2.5, 7}, {0.2, 0.2, 0.2, 1, 1, 1}},
    {"tanh",
     {-0.999329299739067, -0.9051482536448664, -0.2913126124515909, 0.3799489622552249,
      0.9866142981514303, 0.9999983369439447},
     {0.0013409506830259165, 0.1807066389236486, 0.9151369618266292, 0.8556387860811777,
      0.02659222668316057, 3.3261093448688367e-06}},
    {"erf",
     {-0.9999999845827421, -0.9661051464753108, -0.3286267594591274, 0.42839235504666845,
      0.999593047982555, 1.0},
     {1.2698234671866558e-07, 0.11893028922362936, 1.031260909618963, 0.9615412988393078,
      0.00217828423035271, 5.9159629580030695e-22}},
    {"abs", {4.0, 1.5, 0.3, 0.4, 2.5, 7.0}, {-1.0, -1.0, -1.0, 1.0, 1.0, 1.0}},
    {"negate", {4.0, 1.5, 0.3, -0.4, -2.5, -7.0}, {-1.0, -1.0, -1.0, -1.0, -1.0, -1.0}},
    {"softplus",
     {0.018149927917809738, 0.2014132779827524, 0.5543552444685271, 0.9130152523999526,
      2.5788897342925496, 7.000911466453774},
     {0.017986209962091555, 0.18242552380635632, 0.425557483188341, 0.598687660112452,
      0.9241418199787564, 0.9990889488055994}},
    {"elu",
     {-0.9816843611112658, -0.7768698398515702, -0.2591817793182821, 0.4, 2.5, 7.0},
     {0.01831563888873418, 0.22313016014842982, 0.7408182206817179, 1.0, 1.0, 1.0}},
    {"mish",
     {-0.07259174079202535, -0.29809974216680674, -0.15113317713833455, 0.2890305340723631,
      2.471392304557881, 6.999988379809741},
     {-0.05377320979348033, -0.06409781589225869, 0.40851087693570215, 0.8370175025417962,
      1.041129530131353, 1.000021559160889}},
    {"softsign",
     {-0.8, -0.6, -0.23076923076923075, 0.28571428571428575, 0.7142857142857143, 0.875},
     {0.04000000000000001, 0.16000000000000003, 0.5917159763313609, 0.5102040816326531,
      0.08163265306122447, 0.015625}},
    {"clip", {0.2, 0.2, 0.2, 0.4, 0.7, 0.7}, {0.0, 0.0, 0.0, 1.0, 0.0, 0.0}},
    {"scale_shift",
     {-0.10000000000000009, 0.3999999999999999, 0.6399999999999999, 0.78, 1.2, 2.1},
     {0.2, 0.2, 0.2, 0.2, 0.2, 0.2}},
};
// At 0.01, 0.3, 0.4, 1, 2.5 and 7.
const KnownActivation kKnownSteep[] = {
    {"exp",
     {1.010050167084168, 1.3498588075760032, 1.4918246976412703, 2.718281828459045,
      12.182493960703473, 1096.6331584284585},
     {1.010050167084168, 1.3498588075760032, 1.4918246976412703, 2.718281828459045,
      12.182493960703473, 1096.6331584284585}},
    {"log",
     {-4.605170185988091, -1.2039728043259361, -0.916290731874155, 0.0, 0.9162907318741551,
      1.9459101490553132},
     {100.0, 3.3333333333333335, 2.5, 1.0, 0.4, 0.14285714285714285}},
    {"sqrt",
     {0.1, 0.5477225575051661, 0.6324555320336759, 1.0, 1.5811388300841898, 2.6457513110645907},
     {5.0, 0.9128709291752769, 0.7905694150420948, 0.5, 0.31622776601683794, 0.1889822365046136}},
    {"reciprocal",
     {100.0, 3.3333333333333335, 2.5, 1.0, 0.4, 0.14285714285714285},
     {-10000.0, -11.111111111111112, -6.25, -1.0, -0.16000000000000003, -0.02040816326530612}},
    {"power",
     {0.39810717055349726, 0.7860030855966228, 0.8325532074018731, 1.0, 1.2011244339814313,
      1.4757731615945522},
     {7.962143411069947, 0.5240020570644153, 0.4162766037009366, 0.2, 0.0960899547185145,
      0.042164947474130056}},
};

void expect_known(const KnownActivation& known, const std::vector<double>& at) {
  SCOPED_TRACE(known.name);
  const Activation f{*find_activation(known.name), 0.2, 0.7};
  Operand<double> x = operand_of<double>({6}, at), y({6}, 9), dy({6}, 1), dx({6}, 9);
  Context c(1, 0);
  activation_forward(c.context, x.view(), f, y.view());
  activation_backward(c.context, uses_output(f.kind) ? y.view() : x.view(), dy.view(), f, dx.view(),
                      Write::kOverwrite);
  EXPECT_EQ(far_apart(y.values, known.values, 1e-14, 1e-16), "");
  EXPECT_EQ(far_apart(dx.values, known.slopes, 1e-11, 1e-16), "");
}

TEST(Activations, ArePyTorchs) {
  ASSERT_EQ(std::size(kKnownActivations) + std::size(kKnownSteep), kActivationNames.size());
  for (const KnownActivation& known : kKnownActivations)
    expect_known(known, {-4, -1.5, -0.3, 0.4, 2.5, 7});
  for (const KnownActivation& known : kKnownSteep) expect_known(known, {0.01, 0.3, 0.4, 1, 2.5, 7});
  EXPECT_FALSE(find_activation("relu7"));
}

// What torch 2 has where the pieces meet: the smaller derivative for relu6 and hard_sigmoid.
TEST(Activations, MeetingPointsHavePyTorchsDerivatives) {
  const auto slopes = [](const char* name, const std::vector<float>& at) {
    Activation f{*find_activation(name)};
    if (f.kind == ActivationKind::kClip) f.first = 0.25, f.second = 0.5;
    const Shape shape{static_cast<std::int64_t>(at.size())};
    Operand<float> x = operand_of<float>(shape, at), y(shape, 9), dy(shape, 1), dx(shape, 9);
    Context c(1, 0);
    activation_forward(c.context, x.view(), f, y.view());
    activation_backward(c.context, uses_output(f.kind) ? y.view() : x.view(), dy.view(), f,
                        dx.view(), Write::kOverwrite);
    return dx.values;
  };
  for_each_setting([&](int) {
    EXPECT_EQ(slopes("relu6", {0, 6, 5.9999995F}), (std::vector<float>{0, 0, 1}));
    EXPECT_EQ(slopes("hard_sigmoid", {-3, 3, 0}), (std::vector<float>{0, 0, 1.F / 6}));
    EXPECT_EQ(slopes("hard_swish", {-3, 3, 0}), (std::vector<float>{0, 1, 0.5F}));
    EXPECT_EQ(slopes("leaky_relu", {0, -0.F, 1e-30F}), (std::vector<float>{0.01F, 0.01F, 1}));
    EXPECT_EQ(slopes("elu", {0, 1e-30F}), (std::vector<float>{1, 1}));
    EXPECT_EQ(slopes("abs", {0, -1e-30F, 1e-30F}), (std::vector<float>{0, -1, 1}));
    EXPECT_EQ(slopes("clip", {0.25F, 0.5F, 0.2F, 0.6F}), (std::vector<float>{1, 1, 0, 0}));
  });
}

// A dense walk over [-20, 20] and the ends of the range.
Operand<float> activation_walk() {
  std::vector<float> values{0.f,   -0.f, 1e-30f, -1e-30f, 1e-4f,  80.f,
                            -80.f, 1e4f, -1e4f,  1e18f,   -1e12f, -89.f};
  for (int i = -40'000; i <= 40'000; ++i) values.push_back(static_cast<float>(i) * 5e-4f);
  return operand_of<float>({static_cast<std::int64_t>(values.size())}, values);
}

TEST(Activations, AreWithinAMillionthOfTheirDefinitionEverywhere) {
  Operand<float> x = activation_walk(), dy(x.shape, 1.f);
  Operand<double> wide = widen(x), wide_dy = widen(dy);
  for_each_setting([&](int threads) {
    Context c(threads, 0);
    for (const Activation& f : all_activations()) {
      SCOPED_TRACE(activation_name(f));
      Operand<float> y = gemm_test::nan_operand(x.shape), dx = y;
      Operand<double> wide_y(x.shape, 0), wide_dx(x.shape, 0);
      const bool of_output = uses_output(f.kind),
                 by_x = f.kind == ActivationKind::kSilu || f.kind == ActivationKind::kMish;
      activation_forward(c.context, x.view(), f, y.view());
      activation_forward(c.context, wide.view(), f, wide_y.view());
      activation_backward(c.context, of_output ? y.view() : x.view(), dy.view(), f, dx.view(),
                          Write::kOverwrite);
      activation_backward(c.context, of_output ? wide_y.view() : wide.view(), wide_dy.view(), f,
                          wide_dx.view(), Write::kOverwrite);
      for (std::size_t i = 0; i < x.values.size(); ++i) {
        const double size = std::fabs(by_x ? wide.values[i] : wide_y.values[i]);
        ASSERT_LE(std::fabs(y.values[i] - wide_y.values[i]), 1e-6 * size + 1e-38)
            << "x = " << x.values[i];
        ASSERT_LE(std::fabs(dx.values[i] - wide_dx.values[i]), 2e-6) << "x = " << x.values[i];
      }
      Operand<float> same = x;
      activation_forward(c.context, same.view(), f, same.view());  // in place
      EXPECT_EQ(same.values, y.values);
    }
  });
}

// Over the range of positive numbers; log is near 0 around 1.
TEST(Activations, SteepOnesAreWithinAMillionthOfTheirDefinition) {
  std::vector<float> values{1e-40F, 1.1754944e-38F, 1e-30F, 1e-12F, 80, 1e4F, 1e12F};
  for (int i = 1; i <= 20'000; ++i) values.push_back(static_cast<float>(i) * 5e-4F);
  Operand<float> x = operand_of<float>({static_cast<std::int64_t>(values.size())}, values),
                 dy(x.shape, 1.F);
  Operand<double> wide = widen(x), wide_dy = widen(dy);
  for_each_setting([&](int threads) {
    Context c(threads, 0);
    for (const Activation& f : steep_activations()) {
      SCOPED_TRACE(activation_name(f));
      Operand<float> y = gemm_test::nan_operand(x.shape), dx = y;
      Operand<double> wide_y(x.shape, 0), wide_dx(x.shape, 0);
      activation_forward(c.context, x.view(), f, y.view());
      activation_forward(c.context, wide.view(), f, wide_y.view());
      activation_backward(c.context, uses_output(f.kind) ? y.view() : x.view(), dy.view(), f,
                          dx.view(), Write::kOverwrite);
      activation_backward(c.context, uses_output(f.kind) ? wide_y.view() : wide.view(),
                          wide_dy.view(), f, wide_dx.view(), Write::kOverwrite);
      const double least = f.kind == ActivationKind::kLog ? 1 : 0;
      for (std::size_t i = 0; i < x.values.size(); ++i) {
        const auto expect_near = [&](float found, double expected, double error) {
          if (std::fabs(expected) > 3e38)
            EXPECT_GT(std::fabs(found), 3e38) << "x = " << x.values[i];
          else
            EXPECT_LE(std::fabs(found - expected),
                      error * std::fmax(least, std::fabs(expected)) + 1e-38)
                << "x = " << x.values[i];
        };
        expect_near(y.values[i], wide_y.values[i], 1e-6);
        expect_near(dx.values[i], wide_dx.values[i], 2e-6);
      }
    }
  });
}

// As in PyTorch.
TEST(Activations, SteepOnesBeyondTheirRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto values = [](const Activation& f, const std::vector<float>& at) {
    Operand<float> x = operand_of<float>({static_cast<std::int64_t>(at.size())}, at), y = x;
    Context c(1, 0);
    activation_forward(c.context, x.view(), f, y.view());
    return y.values;
  };
  for_each_setting([&](int) {
    using enum ActivationKind;
    EXPECT_EQ(values({kLog}, {0, infinity}), (std::vector<float>{-infinity, infinity}));
    EXPECT_EQ(values({kReciprocal}, {0, infinity}), (std::vector<float>{infinity, 0}));
    EXPECT_EQ(values({kExp}, {89, -infinity, 0}), (std::vector<float>{infinity, 0, 1}));
    for (const ActivationKind kind : {kLog, kSqrt})
      EXPECT_TRUE(std::isnan(values({kind}, {-1})[0]));
    EXPECT_EQ(values({kPower, 3}, {-2, 0.5}), (std::vector<float>{-8, 0.125}));
    for (const Activation& f : steep_activations())
      if (f.kind != kPower || f.first != 0) {
        EXPECT_TRUE(std::isnan(values(f, {NAN})[0])) << activation_name(f);
      }
  });
}

TEST(Activations, GradientsAtOddSizesInPlaceAndAdded) {
  for_each_setting([](int threads) {
    for (const std::int64_t count : {0, 1, 7, 16, 17, 33, 4097, 9999})
      for (const Write write : {Write::kOverwrite, Write::kAdd})
        for (const Activation& f : all_activations()) {
          const Given operands[] = {random_operand({count}, 1), random_operand({count}, 2),
                                    random_operand({count}, 2), output({count}, write)};
          const auto [found, expected] = run_both(
              threads, operands,
              [&](KernelContext& c, TensorView x, TensorView dy, TensorView same, TensorView dx) {
                activation_backward(c, x, dy, f, dx, write);
                activation_backward(c, x, same, f, same, Write::kOverwrite);  // in place
              });
          EXPECT_EQ(far_apart(found[3], expected[3], 2e-6, 2e-6), "") << activation_name(f);
          if (write == Write::kOverwrite) {
            EXPECT_EQ(found[2], found[3]) << activation_name(f);
          }
        }
  });
}

TEST(Activations, PassANanOn) {
  for_each_setting([](int) {
    for (const Activation& f : all_activations()) {
      Operand<float> x({19}, std::nanf("")), y({19}, 0);
      Context c(1, 0);
      activation_forward(c.context, x.view(), f, y.view());
      for (const float value : y.values) EXPECT_TRUE(std::isnan(value)) << activation_name(f);
    }
  });
}

TEST(Activations, RefuseOperandsThatDoNotFit) {
  Context c(1, 0);
  Operand<float> x({4}, 0), y({5}, 0);
  Operand<double> wide({4}, 0);
  EXPECT_THROW(activation_forward(c.context, x.view(), {}, y.view()), ShapeError);
  EXPECT_THROW(activation_forward(c.context, x.view(), {}, wide.view()), ShapeError);
  EXPECT_THROW(activation_backward(c.context, x.view(), x.view(), {}, y.view(), Write::kAdd),
               ShapeError);
}

struct StoredActivationCase {
  Activation f;
  std::int64_t count;
  Write write;

  template <class T>
  std::vector<std::vector<float>> operator()(T) const {
    auto x = stored_operand<T>({count}, 1), dy = stored_operand<T>({count}, 2),
         y = stored_output<T>({count}, Write::kOverwrite), dx = stored_output<T>({count}, write);
    Context c(2, 0);
    activation_forward(c.context, x.view(), f, y.view());
    activation_backward(c.context, x.view(), dy.view(), f, dx.view(), write);
    return {floats_of(y), floats_of(dx)};
  }
};

class ActivationsStored : public Bf16Test {};

TEST_F(ActivationsStored, AreThoseOfFloatsRounded) {
  for (const std::int64_t count : kStoredChannels)
    for (const Write write : {Write::kOverwrite, Write::kAdd})
      for (const Activation& f : all_activations()) {
        SCOPED_TRACE(activation_name(f) + " of " + std::to_string(count));
        expect_same_rounded(StoredActivationCase{f, count, write}, 2);
      }
}

}  // namespace
}  // namespace engine::ops
