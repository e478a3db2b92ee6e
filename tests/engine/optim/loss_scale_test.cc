// Loss scaling: PyTorch's GradScaler as known numbers, text and checkpoints, and a CUDA device
// against the reference.
#include "engine/optim/loss_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "engine/core/error.h"
#include "engine/ops/optim_step/device_step.h"
#include "engine/optim/optimizer.h"
#include "tests/engine/ops/device/cuda_test_support.h"
#include "tests/engine/optim/typed_optimizers.h"

namespace engine {
namespace {

using Kind = LossScaleRule::Kind;

TEST(LossScale, IsReadAndPrinted) {
  EXPECT_EQ(parse_loss_scale(""), LossScaleRule{});
  EXPECT_EQ(parse_loss_scale("off"), LossScaleRule{});
  EXPECT_EQ(parse_loss_scale("dynamic").kind, Kind::kDynamic);
  EXPECT_EQ(parse_loss_scale("dynamic").initial, 65536);
  EXPECT_EQ(parse_loss_scale("128"), (LossScaleRule{.kind = Kind::kFixed, .initial = 128}));
  EXPECT_EQ(parse_loss_scale("0.5").initial, 0.5f);
  for (const char* text : {"off", "dynamic", "128", "0.5", "1e+20"})
    EXPECT_EQ(to_string(parse_loss_scale(text)), text);
  for (const char* text : {"0", "-1", "inf", "nan", "1x", "x", " 1", "1e99", "Dynamic"})
    EXPECT_THROW(parse_loss_scale(text), ModelError) << text;
}

StepControl after(const LossScaleRule& rule, StepControl control, int steps, bool overflow) {
  for (int i = 0; i < steps; ++i) {
    control.skip = overflow ? 1 : 0;
    settle_on_host(rule, 0, control);
  }
  return control;
}

// torch.amp.GradScaler(): init_scale 65536, growth 2, backoff 0.5, interval 2000.
TEST(LossScale, GrowsAndBacksOffAsPyTorchs) {
  const LossScaleRule rule = parse_loss_scale("dynamic");
  StepControl c = first_control(rule);
  EXPECT_EQ(c.loss_scale, 65536);
  c = after(rule, c, 1999, false);
  EXPECT_EQ(c.loss_scale, 65536);
  EXPECT_EQ(c.good_steps, 1999);
  EXPECT_EQ(c.gradient_scale, 1.f / 65536);
  c = after(rule, c, 1, false);
  EXPECT_EQ(c.loss_scale, 131072);
  EXPECT_EQ(c.gradient_scale,
            1.f / 65536);  // of the gradients that were computed with the old scale
  EXPECT_EQ(c.good_steps, 0);
  c = after(rule, c, 1500, false);
  c = after(rule, c, 1, true);  // the count starts again
  EXPECT_EQ(c.loss_scale, 65536);
  c = after(rule, c, 1999, false);
  EXPECT_EQ(c.loss_scale, 65536);
  EXPECT_EQ(c.applied_steps, 2000 + 1500 + 1999);
  EXPECT_EQ(c.skipped_steps, 1);
  c = after(rule, c, 40, true);
  EXPECT_EQ(c.loss_scale, 1);
  EXPECT_EQ(c.skipped_in_a_row, 40);
  c = after(rule, c, 2000 * 30, false);
  EXPECT_EQ(c.loss_scale, 16777216);
  EXPECT_EQ(c.skipped_in_a_row, 0);
}

TEST(LossScale, AFixedOneStaysAndStillSkips) {
  const LossScaleRule rule = parse_loss_scale("512");
  StepControl c = after(rule, first_control(rule), 5000, false);
  c = after(rule, c, 1, true);
  EXPECT_EQ(c.loss_scale, 512);
  EXPECT_EQ(c.skipped_steps, 1);
  const StepControl off = after({}, first_control({}, 7), 3, true);
  EXPECT_EQ(off.skipped_steps, 0);
  EXPECT_EQ(off.applied_steps, 10);
}

TEST(LossScale, ComesBackFromACheckpoint) {
  const LossScaleRule dynamic = parse_loss_scale("dynamic");
  StepControl c = after(dynamic, after(dynamic, first_control(dynamic), 3, true), 55, false);
  StepControl back = first_control(dynamic, c.applied_steps);
  restore_scale(dynamic, scale_counters(dynamic, c), back);
  EXPECT_EQ(back.loss_scale, 8192);
  EXPECT_EQ(back.good_steps, 55);
  EXPECT_EQ(back.skipped_steps, 3);
  EXPECT_EQ(back.applied_steps, 55);
  c = after(dynamic, c, 2000, false);
  back = after(dynamic, back, 2000, false);
  EXPECT_EQ(c.loss_scale, back.loss_scale);
  EXPECT_EQ(c.good_steps, back.good_steps);

  const LossScaleRule fixed = parse_loss_scale("32");
  StepControl other = first_control(fixed);
  restore_scale(fixed, scale_counters(dynamic, c), other);
  EXPECT_EQ(other.loss_scale, 32);
  EXPECT_TRUE(scale_counters({}, first_control({})).empty());
  StepControl odd = first_control(dynamic);
  restore_scale(dynamic,
                {{"scaler.loss_scale", -5}, {"scaler.good_steps", 1'000'000'000'000}, {"else", 1}},
                odd);
  EXPECT_EQ(odd.loss_scale, 1);
  EXPECT_EQ(odd.good_steps, 2000);
}

// A small model's parameters on a device and on the CPU, stepped together.
class LossScaleDevice : public cuda_test::CudaTest {
 protected:
  static std::vector<NamedLayout> layouts() {
    return {{"w", TensorLayout::plain({61, 7}), DType::kF32},
            {"b", TensorLayout::plain({5}), DType::kF32}};
  }
  static void upload(const FlatBuffer& from, const FlatBuffer& to) {
    cuda::copy_async(to.data(), from.data(), from.bytes(), nullptr);
    cuda::synchronize_device();
  }
  static void expect_equal(const FlatBuffer& device, const FlatBuffer& host, int step) {
    std::vector<std::byte> bytes(host.bytes());
    cuda::synchronize_device();
    cuda::copy_async(bytes.data(), device.data(), bytes.size(), nullptr);
    cuda::synchronize_device();
    EXPECT_EQ(std::memcmp(bytes.data(), host.data(), bytes.size()), 0) << "step " << step;
  }
  static void fill(const FlatBuffer& buffer, std::mt19937& generator, float scale) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (const FlatBuffer::Slot& slot : buffer.slots())
      for (std::int64_t i = 0; i < slot.count; ++i)
        buffer.span<float>()[static_cast<std::size_t>(slot.offset + i)] =
            uniform(generator) * scale;
  }
  template <class Make>
  static void compare(LossScaleRule rule, double max_norm, const Make& make);
};

// Overflows come at random; both must skip the same steps, adapt the scale alike, and hold the same
// bits all along.
template <class Make>
void LossScaleDevice::compare(LossScaleRule rule, double max_norm, const Make& make) {
  rule.interval = 5;
  rule.lowest = 32768;  // so that both limits are met
  rule.highest = 131072;
  std::mt19937 generator(7);
  ParameterBuffer host(DType::kF32, layouts()), device(DType::kF32, layouts(), cuda_test::kDevice);
  fill(host.values, generator, 1);
  upload(host.values, device.values);
  const auto on_host = make(host.values), on_device = make(device.values);
  for (const Optimizer::State& s : on_device->state())
    EXPECT_EQ(s.buffer->device(), cuda_test::kDevice);

  gemm_test::Context cpu(2, 0);
  cuda_test::DeviceContext c(ops::find_overflow_scratch_bytes(device.values.size()));
  StepControl expected = first_control(rule), found;
  const Arena control(sizeof expected, cuda_test::kDevice),
      numbers(sizeof(StepNumbers), cuda_test::kDevice);
  const Arena half(device.values.bytes() / 2, cuda_test::kDevice);
  cuda::copy_async(control.data(), &expected, sizeof expected, nullptr);
  auto* device_control = reinterpret_cast<StepControl*>(control.data());
  const auto* device_numbers = reinterpret_cast<const StepNumbers*>(numbers.data());
  int skipped = 0;
  float least = expected.loss_scale, most = least;
  for (int step = 0; step < 200; ++step) {
    fill(host.gradients, generator, expected.loss_scale);
    const bool overflow = generator() % (step < 100 ? 11 : 3) == 0;
    if (overflow)
      host.gradients.span<float>()[generator() % 61] = std::numeric_limits<float>::infinity();
    upload(host.gradients, device.gradients);
    const StepNumbers now{.max_norm = max_norm, .lr = 0.1 / (1 + step)};
    cuda::copy_async(numbers.data(), &now, sizeof now, nullptr);
    cuda::synchronize_device();

    if (max_norm > 0 || rule.on())
      expected.squared_norm = ops::sum_of_squares(cpu.context, host.gradients.flat());
    expected.skip = rule.on() && overflow ? 1 : 0;
    settle_on_host(rule, max_norm, expected);
    if (expected.skip == 0)
      on_host->step(cpu.context, now.lr, expected.gradient_scale, host.gradients, host.values);
    skipped += expected.skip;

    ops::finish_gradients(c.context, rule, device.gradients.flat(), device_numbers, device_control);
    on_device->step_on_device(c.context, {.numbers = device_numbers,
                                          .control = device_control,
                                          .gradients = device.gradients,
                                          .values = device.values,
                                          .half_copy = half.data(),
                                          .half = DType::kF16});
    c.finish();
    cuda::copy_async(&found, control.data(), sizeof found, nullptr);
    cuda::synchronize_device();
    EXPECT_EQ(found.loss_scale, expected.loss_scale);
    least = std::min(least, found.loss_scale);
    most = std::max(most, found.loss_scale);
    EXPECT_EQ(found.good_steps, expected.good_steps);
    EXPECT_EQ(found.applied_steps, expected.applied_steps);
    EXPECT_EQ(found.skipped_steps, expected.skipped_steps);
    EXPECT_EQ(found.skipped_in_a_row, expected.skipped_in_a_row);
    EXPECT_EQ(found.skip, expected.skip);
    if (expected.skip == 0) {
      EXPECT_EQ(found.gradient_scale, expected.gradient_scale);
      EXPECT_EQ(found.step_scale, expected.step_scale);
    }
    expect_equal(device.values, host.values, step);
    for (std::size_t i = 0; i < on_host->state().size(); ++i)
      expect_equal(*on_device->state()[i].buffer, *on_host->state()[i].buffer, step);
  }
  EXPECT_EQ(found.applied_steps, on_host->step_count());
  EXPECT_EQ(skipped > 0, rule.on());
  if (rule.kind == Kind::kDynamic) {
    EXPECT_EQ(least, rule.lowest);
    EXPECT_EQ(most, rule.highest);
  }
}

TEST_F(LossScaleDevice, AgreesWithTheReferenceOverRandomOverflows) {
  const auto sgd = [](const FlatBuffer& v) {
    return make_sgd({.momentum = 0.9, .weight_decay = 0.01, .nesterov = true}, v);
  };
  const auto adamw = [](const FlatBuffer& v) { return make_adamw({.weight_decay = 0.1}, v); };
  for (const char* rule : {"dynamic", "512"})
    for (const double max_norm : {0.0, 0.3}) {
      SCOPED_TRACE(std::string(rule) + (max_norm > 0 ? ", clipped" : ""));
      compare(parse_loss_scale(rule), max_norm, sgd);
      compare(parse_loss_scale(rule), max_norm, adamw);
    }
}

}  // namespace
}  // namespace engine
