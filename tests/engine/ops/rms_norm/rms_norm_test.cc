// RMS normalization of rows and of parts of them: PyTorch's definition, and the fast kernels
// against the float64 loops at odd sizes.
#include <gtest/gtest.h>

#include "tests/engine/ops/rms_norm/rms_norm_cases.h"
#include "tests/support/expect_contains.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

// The numbers of torch.nn.functional.rms_norm(x, [3], weight, eps=1e-6), made from its documented
// definition with 50 decimal digits; the gradients are central differences of that.
TEST(RmsNorm, FollowsPyTorchsDefinition) {
  const Shape shape{2, 3}, vector{3};
  RmsNormCase<Operand<double>> c{};
  c.x = operand_of<double>(shape, {3.125, -0.625, -4.375, 1.125, -2.125, -2.75});
  c.gamma = operand_of<double>(vector, {0.5, 1, 2});
  c.dy = operand_of<double>(shape, {1, -2, 0.5, 0.25, 1, -1});
  c.y = c.dx = Operand<double>(shape, 0);
  c.dgamma = Operand<double>(vector, 0);
  c.inverse_rms = Operand<double>({2}, 0);
  Context context(1, 0);
  c.forward(context.context);
  c.backward(context.context, Write::kOverwrite);
  EXPECT_EQ(
      far_apart(c.y.values,
                std::vector<double>{0.499999974400002, -0.19999998976000077, -2.799999856640011,
                                    0.26671298316480424, -1.0075823808448159, -2.607860279833641},
                1e-13, 1e-15),
      "");
  EXPECT_EQ(
      far_apart(c.dx.values,
                std::vector<double>{0.21333331694933502, -0.6506666322602694, 0.24533332841813313,
                                    -0.0812700447202119, 0.739620096858365, -0.604771593056917},
                1e-13, 1e-15),
      "");
  EXPECT_EQ(
      far_apart(c.dgamma.values,
                std::vector<double>{1.1333564403824061, -0.6075824013248143, 0.6039301757568178},
                1e-13, 1e-15),
      "");
}

// Calls check(setting, write, threads) for all of them.
template <class Check>
void for_each_rms_norm(Check check) {
  for_each_setting([&](int threads) {
    for (const RmsNormSetting& setting : kRmsNorms)
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(setting.text());
        check(setting, write, threads);
      }
  });
}

// Numbers that are NaN where x is, and else those of `values`.
std::vector<float> normalized(const RmsNormSetting& setting, const std::vector<float>& values) {
  std::vector<float> chosen;
  const std::int64_t stride = setting.shape[setting.shape.rank() - 1];
  for (std::size_t i = 0; i < values.size(); ++i)
    if (setting.has(static_cast<std::int64_t>(i) % stride)) chosen.push_back(values[i]);
  return chosen;
}

TEST(RmsNorm, Float32AgreesWithFloat64AndDoesNotDependOnThreads) {
  std::vector<std::vector<float>> first, found;
  for_each_rms_norm([&](const RmsNormSetting& setting, Write write, int threads) {
    RmsNormCase<Operand<float>> fast = rms_norm_case(setting, write);
    RmsNormCase<Operand<double>> slow = fast.as(widen, widen);
    Context c(threads, 0);
    fast.forward(c.context);
    slow.forward(c.context);
    EXPECT_EQ(far_apart(fast.y.values, slow.y.values, 1e-5, 1e-6), "");
    EXPECT_EQ(far_apart(fast.inverse_rms.values, slow.inverse_rms.values, 1e-5, 0), "");
    fast.backward(c.context, write);
    slow.backward(c.context, write);
    EXPECT_EQ(far_apart(fast.dx.values, slow.dx.values, 1e-5, 1e-5), "");
    EXPECT_EQ(far_apart(fast.dgamma.values, slow.dgamma.values, 1e-5, 2e-5), "");
    found.insert(found.end(), {fast.y.values, fast.dx.values, fast.dgamma.values});
    if (found.size() < 3 * 2 * std::size(kRmsNorms)) return;
    if (threads == 1) first = found;
    EXPECT_EQ(found, first);
    found.clear();
  });
}

TEST(RmsNorm, InPlaceAndWithoutWhatIsNotWanted) {
  for_each_rms_norm([](const RmsNormSetting& setting, Write write, int threads) {
    if (write == Write::kAdd) return;
    RmsNormCase<Operand<float>> a = rms_norm_case(setting, write), b = a;
    Context c(threads, 0);
    a.forward(c.context);
    a.backward(c.context, write);
    b.forward(c.context, b.y.view(), {});
    EXPECT_EQ(b.y.values, a.y.values);
    b.inverse_rms = a.inverse_rms;
    b.backward(c.context, write, {});
    EXPECT_EQ(b.dgamma.values, a.dgamma.values);
    b.backward(c.context, write, b.dy.view());
    EXPECT_EQ(normalized(setting, b.dy.values), normalized(setting, a.dx.values));
    b.forward(c.context, b.x.view(), {});
    EXPECT_EQ(normalized(setting, b.x.values), normalized(setting, a.y.values));
  });
}

TEST(RmsNorm, RefusesShapesThatDoNotFit) {
  Context context(1, 0);
  const RmsNormSetting setting{{2, 5, 40}, 8, {24, 2}};
  RmsNormCase<Operand<float>> c = rms_norm_case(setting, Write::kOverwrite);
  c.parts.count = 3;
  EXPECT_VALUES(shape_error([&] { c.forward(context.context); }),
                "rms_norm_forward: 3 parts 8 24 40");
  c = rms_norm_case(setting, Write::kOverwrite);
  c.inverse_rms = Operand<float>({19}, 0);
  EXPECT_THROW(c.forward(context.context), ShapeError);
  EXPECT_THROW(c.backward(context.context, Write::kOverwrite), ShapeError);
  c = rms_norm_case({{2, 40}}, Write::kOverwrite);
  c.gamma = Operand<float>({39}, 0);
  EXPECT_THROW(c.forward(context.context), ShapeError);
  c = rms_norm_case({{2, 40}}, Write::kOverwrite);
  c.x = c.y = Operand<float>({40}, 0);
  EXPECT_VALUES(shape_error([&] { c.forward(context.context, c.y.view(), {}); }),
                "rms_norm_forward [40] [rows..., width]");
}

}  // namespace
}  // namespace engine::ops
