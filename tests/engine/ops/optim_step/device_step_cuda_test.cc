// The end of a step on a CUDA device: the CPU's bits for norm, clipping and updates, skipped steps,
// copies in half precision.
#include "engine/ops/optim_step/device_step.h"

#include <cstring>
#include <limits>

#include "tests/engine/ops/device/cuda_test_support.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

class DeviceStep : public CudaTest {};

template <class T>
class OnDevice {  // one plain struct in device memory
 public:
  explicit OnDevice(const T& value) : bytes_({static_cast<std::int64_t>(sizeof(T))}, raw(value)) {}
  T* get() const { return static_cast<T*>(bytes_.view().data); }
  T value() const {
    T result;
    std::memcpy(static_cast<void*>(&result), bytes_.values().data(), sizeof result);
    return result;
  }

 private:
  static std::vector<std::uint8_t> raw(const T& value) {
    std::vector<std::uint8_t> bytes(sizeof(T));
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  }
  DeviceOperand<std::uint8_t> bytes_;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

template <class H>
bool is_rounded(const std::vector<H>& halves, const std::vector<float>& values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (halves[i].bits != from_float<H>(values[i]).bits) return false;
  return halves.size() == values.size();
}

// The view without its first `skipped` elements: memory that 16 bytes do not divide.
TensorView tail(TensorView view, std::int64_t skipped) {
  if (!view) return view;
  view.data =
      static_cast<std::byte*>(view.data) + skipped * static_cast<std::int64_t>(size_of(view.dtype));
  view.shape = Shape{view.count() - skipped};
  return view;
}

struct StepSizes {
  std::int64_t count, skipped;
};
constexpr StepSizes kStepSizes[] = {{0, 0},    {1, 0},    {7, 0},     {64, 0},
                                    {1029, 0}, {1030, 1}, {40'003, 2}};

// Both run on the same numbers, four steps, the third of them skipped on the device and not taken
// on the CPU.
struct Pair {
  Pair(std::int64_t count, std::int64_t at)
      : skipped(std::min(at, count)),
        a(random_operand({count - skipped}, 2)),
        b(random_operand({count - skipped}, 3)),
        value(random_operand({count - skipped}, 4)),
        device_a(whole(a)),
        device_b(whole(b)),
        device_value(whole(value)) {
    for (float& square : b.values) square *= square;
    device_b = whole(b);
  }
  DeviceOperand<float> whole(const Operand<float>& operand) const {
    std::vector<float> values(static_cast<std::size_t>(skipped), 5.f);
    values.insert(values.end(), operand.values.begin(), operand.values.end());
    const Shape shape{static_cast<std::int64_t>(values.size())};
    return DeviceOperand<float>(shape, values);
  }
  std::vector<float> kept(const DeviceOperand<float>& operand) const {
    const std::vector<float> all = operand.values();
    for (std::int64_t i = 0; i < skipped; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], 5.f);
    return {all.begin() + skipped, all.end()};
  }
  TensorView at(const DeviceOperand<float>& operand) const { return tail(operand.view(), skipped); }

  std::int64_t skipped;
  Operand<float> a, b, value;
  DeviceOperand<float> device_a, device_b, device_value;
};

// `step` on the CPU with what the numbers and the control say, and on the device with the first
// `states` of a and b. H: of the copy in half precision; std::uint8_t: there is none.
template <class H>
void expect_the_cpus_bits(const UpdateStep& step, std::size_t states, double rate = 1) {
  for (const StepSizes& sizes : kStepSizes) {
    SCOPED_TRACE(sizes.count);
    constexpr bool kCopies = !std::is_same_v<H, std::uint8_t>;
    Pair p(sizes.count, sizes.skipped);
    const DeviceOperand<H> half({sizes.count},
                                std::vector<H>(static_cast<std::size_t>(sizes.count)));
    const TensorView on_host[] = {p.a.view(), p.b.view()},
                     on_device[] = {p.at(p.device_a), p.at(p.device_b)};
    Context host(2, 0);
    DeviceContext c;
    StepControl control{.gradient_scale = 0.7f};
    for (int t = 1; t <= 4; ++t) {
      Operand<float> gradient = random_operand(p.value.shape, static_cast<std::uint32_t>(10 + t));
      const DeviceOperand<float> device_gradient = p.whole(gradient);
      const double lr = 0.1 / t;
      control.skip = t == 3 ? 1 : 0;
      if (t != 3) {
        ++control.applied_steps;
        UpdateStep now = step;
        std::visit(
            [&](auto& each) {
              each.set({lr * rate, control.gradient_scale, control.applied_steps});
            },
            now);
        update(host.context,
               {now, gradient.view(), std::span(on_host).first(states), p.value.view()});
      }
      const OnDevice<StepNumbers> numbers({.lr = lr});
      const OnDevice<StepControl> device_control(control);
      update_on_device(
          c.context,
          {step, numbers.get(), device_control.get(), p.at(device_gradient),
           std::span(on_device).first(states), p.at(p.device_value),
           kCopies ? tail(half.view(), std::min(sizes.skipped, sizes.count)) : TensorView{}, rate});
      c.finish();
      EXPECT_TRUE(same_bits(p.kept(p.device_value), p.value.values)) << "step " << t;
      EXPECT_TRUE(same_bits(p.kept(p.device_a), p.a.values)) << "step " << t;
      EXPECT_TRUE(same_bits(p.kept(p.device_b), p.b.values)) << "step " << t;
      if constexpr (kCopies) {
        std::vector<H> halves = half.values();
        halves.erase(halves.begin(), halves.begin() + p.skipped);
        EXPECT_TRUE(is_rounded(halves, p.value.values)) << "step " << t;
      }
    }
  }
}
void expect_the_cpus_bits_with_any_copy(const UpdateStep& step, std::size_t states) {
  expect_the_cpus_bits<std::uint8_t>(step, states);
  expect_the_cpus_bits<bf16>(step, states);
  expect_the_cpus_bits<f16>(step, states);
}

TEST_F(DeviceStep, SgdHasTheCpusBits) {
  for (int options = 0; options < 8; ++options) {
    const SgdStep s{.momentum = options & 1 ? 0.9 : 0.0,
                    .weight_decay = options & 2 ? 0.01 : 0.0,
                    .nesterov = options >= 4};
    if (s.momentum == 0 && s.nesterov) continue;
    SCOPED_TRACE(options);
    expect_the_cpus_bits_with_any_copy(any_sgd(s), s.momentum != 0 ? 1 : 0);
  }
  expect_the_cpus_bits<bf16>(any_sgd({.momentum = 0}), 0, 3);  // at a rate of its own
}

TEST_F(DeviceStep, AdamwHasTheCpusBits) {
  for (const double beta1 : {0.9, 0.4})
    expect_the_cpus_bits_with_any_copy(
        AdamwStep{.beta1 = beta1, .beta2 = 0.99, .weight_decay = 0.1}, 2);
}

TEST_F(DeviceStep, LionHasTheCpusBits) {
  expect_the_cpus_bits<bf16>(LionStep{.weight_decay = 0.1}, 1);
}

TEST_F(DeviceStep, AnAverageHasTheCpusBits) {
  for (const double weight : {0.125, 0.7})
    expect_the_cpus_bits<std::uint8_t>(AverageStep{.weight = weight}, 0);
}

// In float64, where the factor of gradients is that of clipping: the CPU's numbers.
TEST_F(DeviceStep, EveryUpdateOfFloat64IsTheCpus) {
  const auto wide = [](std::int64_t count, std::uint32_t seed) {
    return widen(random_operand({count}, seed));
  };
  constexpr double kNorm = 8, kMaxNorm = 2, kScale = 3;
  for (const std::int64_t count : {1, 7, 1030})
    for (const UpdateStep& step :
         {any_sgd({.momentum = 0, .weight_decay = 0.01}),
          any_sgd({.momentum = 0.9, .nesterov = true}), UpdateStep{AdamwStep{.weight_decay = 0.1}},
          UpdateStep{LionStep{}}, UpdateStep{MuonMomentumStep{}}, UpdateStep{MuonApplyStep{}},
          UpdateStep{AverageStep{.weight = 0.125}}}) {
      SCOPED_TRACE(std::to_string(step.index()) + ", " + std::to_string(count) + " elements");
      Operand<double> value = wide(count, 4), a = wide(count, 2), b = wide(count, 3);
      for (double& square : b.values) square *= square;
      const DeviceOperand<double> device_value(value.shape, value.values),
          device_a(a.shape, a.values), device_b(b.shape, b.values);
      const std::size_t states = std::visit(
          []<class Step>(const Step&) { return static_cast<std::size_t>(Step::kStates); }, step);
      const TensorView on_host[] = {a.view(), b.view()},
                       on_device[] = {device_a.view(), device_b.view()};
      Context host(1, 0);
      DeviceContext c;
      for (int t = 1; t <= 3; ++t) {
        Operand<double> gradient = wide(count, static_cast<std::uint32_t>(10 + t));
        const DeviceOperand<double> device_gradient(gradient.shape, gradient.values);
        UpdateStep now = step;
        std::visit(
            [&](auto& each) {
              each.set({0.1 / t, kScale * kMaxNorm / (kNorm + 1e-6), t});
            },
            now);
        update(host.context,
               {now, gradient.view(), std::span(on_host).first(states), value.view()});
        const OnDevice<StepNumbers> numbers(
            {.max_norm = kMaxNorm, .lr = 0.1 / t, .wide_gradient_scale = kScale});
        const OnDevice<StepControl> control(
            {.applied_steps = t, .gradient_scale = NAN, .squared_norm = kNorm * kNorm});
        update_on_device(c.context, {step, numbers.get(), control.get(), device_gradient.view(),
                                     std::span(on_device).first(states), device_value.view()});
        c.finish();
        EXPECT_LE(relative_error(device_value.values(), value.values), 1e-14);
        EXPECT_LE(relative_error(device_a.values(), a.values), 1e-14);
        EXPECT_LE(relative_error(device_b.values(), b.values), 1e-14);
      }
    }
}

TEST_F(DeviceStep, NormsProductsAndLossGradientsOfFloat64AreTheCpus) {
  constexpr double kThird = 1.0 / 3;
  for (const std::int64_t count : {0, 17, 70'001}) {
    Operand<double> a = widen(random_operand({count}, 5));
    for (double& value : a.values) value *= kThird;
    const DeviceOperand<double> from(a.shape, a.values), scaled(a.shape, a.values),
        rows(a.shape, a.values), combined(a.shape, a.values);
    DeviceContext c(find_overflow_scratch_bytes(count));
    const OnDevice<StepNumbers> numbers({.max_norm = 1, .wide_loss_gradient = kThird});
    const OnDevice<StepControl> control({});
    finish_gradients(c.context, {}, from.view(), numbers.get(), control.get());
    scale_on_device(c.context, kThird, from.view(), scaled.view());
    fill_loss_gradient(c.context, numbers.get(), control.get(), rows.view());
    combine_on_device(c.context, kThird, from.view(), 0.7, rows.view(), combined.view());
    subtract_on_device(c.context, rows.view(), from.view(), from.view());
    c.finish();
    Context host(1, 0);
    const double expected = sum_of_squares(host.context, a.view());
    EXPECT_NEAR(control.value().squared_norm, expected, 1e-14 * expected);
    for (std::size_t i = 0; i < a.values.size(); ++i) {
      ASSERT_EQ(scaled.values()[i], kThird * a.values[i]);
      ASSERT_EQ(rows.values()[i], kThird);
      const double product = kThird * a.values[i], rounded = 0.7 * kThird;
      ASSERT_EQ(combined.values()[i], product + rounded);
      ASSERT_EQ(from.values()[i], kThird - a.values[i]);
      if (i == 100) break;  // values() copies all of them
    }
  }
}

// find_overflow() and settle_step() on `gradients`, from a control of this scale.
StepControl finished(const LossScaleRule& rule, Operand<float>& gradients, double max_norm,
                     float scale) {
  DeviceContext c(find_overflow_scratch_bytes(gradients.shape.count()));
  const auto device = to_device<float>(gradients.shape, gradients.values);
  const OnDevice<StepNumbers> numbers({.max_norm = max_norm});
  const OnDevice<StepControl> control(
      {.loss_scale = scale, .skip = 1, .gradient_scale = NAN, .squared_norm = NAN});
  finish_gradients(c.context, rule, device.view(), numbers.get(), control.get());
  c.finish();
  return control.value();
}

TEST_F(DeviceStep, TheNormAndTheClipFactorHaveTheCpusBits) {
  // The last one has more blocks than the last pass takes at once: 41 more, which two warps read.
  for (const std::int64_t count : {0, 1, 15, 16, 17, 4095, 4096, 4097, 70'001, 4096 * 2088 + 5}) {
    SCOPED_TRACE(count);
    Operand<float> gradients = random_operand({count}, 9);
    Context host(1, 0);
    const double expected = sum_of_squares(host.context, gradients.view());
    for (const double max_norm : {1e-3, 0.7, 1e9}) {
      const StepControl c = finished({}, gradients, max_norm, 1);
      EXPECT_EQ(c.squared_norm, expected);
      const double factor = max_norm / (std::sqrt(expected) + 1e-6);
      EXPECT_EQ(c.gradient_scale, static_cast<float>(factor >= 1 ? 1 : factor));
      EXPECT_EQ(c.skip, 0);
      EXPECT_EQ(c.applied_steps, 1);
    }
  }
}

TEST_F(DeviceStep, ClippingIsOfTheUnscaledGradients) {
  Operand<float> gradients = random_operand({10'000}, 9);
  const StepControl plain = finished({}, gradients, 0.5, 1);
  for (float& g : gradients.values) g *= 1024;
  const StepControl scaled =
      finished({.kind = LossScaleRule::Kind::kFixed, .initial = 1024}, gradients, 0.5, 1024);
  EXPECT_EQ(scaled.gradient_scale, plain.gradient_scale / 1024);
  EXPECT_EQ(scaled.loss_scale, 1024);
  const StepControl loose =
      finished({.kind = LossScaleRule::Kind::kFixed, .initial = 1024}, gradients, 0, 1024);
  EXPECT_EQ(loose.gradient_scale, 1.f / 1024);
}

TEST_F(DeviceStep, FindsEveryOverflowWithLossScalingAndHidesNoneWithout) {
  const LossScaleRule dynamic{.kind = LossScaleRule::Kind::kDynamic, .initial = 65536};
  for (const std::size_t where : {std::size_t{0}, std::size_t{4096}, std::size_t{5002}})
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), NAN}) {
      Operand<float> gradients = random_operand({5003}, 1);
      gradients.values[where] = bad;
      const StepControl scaled = finished(dynamic, gradients, 0, 65536);
      EXPECT_EQ(scaled.skip, 1);
      EXPECT_EQ(scaled.skipped_steps, 1);
      EXPECT_EQ(scaled.applied_steps, 0);
      EXPECT_EQ(scaled.loss_scale, 32768);
      const StepControl plain = finished({}, gradients, 0, 1);
      EXPECT_EQ(plain.skip, 0);
      EXPECT_EQ(plain.gradient_scale, 1);
      const StepControl clipped = finished({}, gradients, 1, 1);
      EXPECT_EQ(clipped.skip, 0);
      EXPECT_FALSE(clipped.gradient_scale > 0);  // NaN or 0, as clip_factor() gives it on
    }
  Operand<float> largest({5003}, std::numeric_limits<float>::max());
  EXPECT_EQ(finished(dynamic, largest, 0, 65536).skip, 0);
}

TEST_F(DeviceStep, WithoutScalingAndClippingGradientsAreNotRead) {
  Operand<float> gradients({100}, NAN);
  const StepControl c = finished({}, gradients, 0, 1);
  EXPECT_EQ(c.squared_norm, 0);
  EXPECT_EQ(c.gradient_scale, 1);
}

// What find_overflow() found may be replaced by what the ranks agreed on before settle_step().
TEST_F(DeviceStep, ASkipAgreedOnIsHonoured) {
  const LossScaleRule dynamic{.kind = LossScaleRule::Kind::kDynamic, .initial = 64};
  DeviceContext c;
  const OnDevice<StepNumbers> numbers({});
  const OnDevice<StepControl> control(
      {.loss_scale = 64, .good_steps = 5, .skip = 1, .squared_norm = 1});
  settle_step(c.context, dynamic, numbers.get(), control.get());
  c.finish();
  EXPECT_EQ(control.value().loss_scale, 32);
  EXPECT_EQ(control.value().good_steps, 0);
  EXPECT_EQ(control.value().skipped_in_a_row, 1);
}

TEST_F(DeviceStep, OnlyASkippedStepIsUndone) {
  for (const std::int64_t count : {1, 255, 70'001})
    for (const std::int32_t skip : {0, 1}) {
      const OnDevice<StepControl> control({.skip = skip});
      const std::vector<float> before(static_cast<std::size_t>(count), 1.5f),
          after(static_cast<std::size_t>(count), -2.0f);
      const DeviceOperand<float> from({count}, before), to({count}, after);
      DeviceContext c;
      restore_if_skipped(c.context, control.get(), from.view(), to.view());
      c.finish();
      EXPECT_TRUE(same_bits(to.values(), skip == 1 ? before : after)) << count;
    }
}

TEST_F(DeviceStep, ProductsAndDifferencesHaveTheCpusBits) {
  for (const auto& [count, skipped] : kStepSizes) {
    const Operand<float> a = random_operand({count}, 5), b = random_operand({count}, 6);
    const auto on_device = to_device<float>({count}, a.values),
               other = to_device<float>({count}, b.values);
    const DeviceOperand<float> scaled({count}, b.values), combined({count}, b.values);
    DeviceContext c;
    const double third = 1.0 / 3, other_factor = 0.7;
    combine_on_device(c.context, third, tail(on_device.view(), skipped), other_factor,
                      tail(combined.view(), skipped), tail(combined.view(), skipped));
    scale_on_device(c.context, third, tail(on_device.view(), skipped),
                    tail(scaled.view(), skipped));
    subtract_on_device(c.context, tail(on_device.view(), skipped), tail(other.view(), skipped),
                       tail(other.view(), skipped));
    c.finish();
    std::vector<float> product = b.values, difference = b.values, combination = b.values;
    for (auto i = static_cast<std::size_t>(skipped); i < product.size(); ++i) {
      product[i] = a.values[i] * static_cast<float>(third);
      difference[i] = a.values[i] - b.values[i];
      const float rounded = b.values[i] * static_cast<float>(other_factor);
      combination[i] = product[i] + rounded;
    }
    EXPECT_TRUE(same_bits(combined.values(), combination)) << count;
    EXPECT_TRUE(same_bits(scaled.values(), product)) << count;
    EXPECT_TRUE(same_bits(other.values(), difference)) << count;
  }
}

TEST_F(DeviceStep, LossGradientsAreScaled) {
  for (const std::int64_t rows : {0, 1, 255, 10'001}) {
    DeviceContext c;
    const DeviceOperand<float> dloss({rows},
                                     std::vector<float>(static_cast<std::size_t>(rows), NAN));
    const OnDevice<StepNumbers> numbers({.loss_gradient = 1.f / 96});
    const OnDevice<StepControl> control({.loss_scale = 4096});
    fill_loss_gradient(c.context, numbers.get(), control.get(), dloss.view());
    c.finish();
    EXPECT_EQ(dloss.values(),
              std::vector<float>(static_cast<std::size_t>(rows), 4096 * (1.f / 96)));
  }
}

template <class H>
void check_copies() {
  for (const auto& [count, skipped] : kStepSizes) {
    const Operand<float> values = random_operand({count}, 3);
    const auto device = to_device<float>({count}, values.values);
    const DeviceOperand<H> half({count}, std::vector<H>(static_cast<std::size_t>(count)));
    DeviceContext c;
    copy_to_half(c.context, tail(device.view(), skipped), tail(half.view(), skipped));
    c.finish();
    std::vector<H> found = half.values();
    found.erase(found.begin(), found.begin() + skipped);
    EXPECT_TRUE(is_rounded(found, {values.values.begin() + skipped, values.values.end()}));
  }
}
TEST_F(DeviceStep, CopiesToHalfAreRoundedToNearest) {
  check_copies<bf16>();
  check_copies<f16>();
}

TEST_F(DeviceStep, RefusesTheCpuAndSpansThatDoNotFit) {
  Context host(1, 0);
  Operand<float> on_host({3}, 0);
  EXPECT_THROW(fill_loss_gradient(host.context, nullptr, nullptr, on_host.view()), Error);
  EXPECT_THROW(update_on_device(host.context, {.step = any_sgd({}),
                                               .numbers = nullptr,
                                               .control = nullptr,
                                               .gradient = on_host.view(),
                                               .states = {},
                                               .value = on_host.view()}),
               Error);
  DeviceContext c;
  EXPECT_THROW(sum_of_squares(c.context, on_host.view()), Error);
  EXPECT_THROW(scale(c.context, 2, on_host.view()), Error);
  const auto three = to_device<float>({3}, {1, 2, 3}), four = to_device<float>({4}, {1, 2, 3, 4});
  const DeviceOperand<f16> half({3}, std::vector<f16>(3));
  const auto step = [&](double momentum, TensorView gradient, TensorView velocity, TensorView value,
                        TensorView copy) {
    update_on_device(c.context, {.step = any_sgd({.momentum = momentum}),
                                 .numbers = nullptr,
                                 .control = nullptr,
                                 .gradient = gradient,
                                 .states = std::span(&velocity, momentum != 0 ? 1u : 0u),
                                 .value = value,
                                 .half_copy = copy});
  };
  EXPECT_THROW(step(0, four.view(), {}, three.view(), {}), ShapeError);
  EXPECT_THROW(step(0.9, three.view(), {}, three.view(), {}), ShapeError);
  EXPECT_THROW(step(0, four.view(), {}, four.view(), half.view()), ShapeError);
  EXPECT_THROW(step(0, three.view(), {}, three.view(), three.view()), ShapeError);
  EXPECT_THROW(find_overflow(c.context, {}, three.view(), nullptr, nullptr), Error);  // no scratch
}

}  // namespace
}  // namespace engine::ops
