// Implements the rule of loss scaling on the host.
#include "engine/optim/loss_scale.h"

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "io/base/text/real_number.h"

namespace engine {
namespace {

constexpr float kFirstScale = 65536;
constexpr const char *kScale = "scaler.loss_scale", *kGood = "scaler.good_steps",
                     *kSkipped = "scaler.skipped_steps", *kInARow = "scaler.skipped_in_a_row";

using Kind = LossScaleRule::Kind;

}  // namespace

LossScaleRule parse_loss_scale(std::string_view text) {
  if (text.empty() || text == "off") return {};
  if (text == "dynamic") return {.kind = Kind::kDynamic, .initial = kFirstScale};
  float scale = 0;
  const auto [end, error] = base::real_from_chars(text.data(), text.data() + text.size(), scale);
  if (error != std::errc() || end != text.data() + text.size() || !std::isnormal(scale) ||
      scale < 0)
    throw ModelError("loss scale '" + std::string(text) +
                     "'; expected off, dynamic or a number above 0");
  return {.kind = Kind::kFixed, .initial = scale};
}

std::string to_string(const LossScaleRule& rule) {
  if (rule.kind == Kind::kOff) return "off";
  if (rule.kind == Kind::kDynamic) return "dynamic";
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, rule.initial).ptr;
  return {text, end};
}

StepControl first_control(const LossScaleRule& rule, std::int64_t steps) {
  StepControl control;
  control.loss_scale = rule.on() ? rule.initial : 1;
  control.applied_steps = steps;
  return control;
}

void settle_on_host(const LossScaleRule& rule, double max_norm, StepControl& control) {
  if (!rule.on()) control.skip = 0;
  control.step_scale = control.loss_scale;
  const double scale = control.loss_scale;
  double factor = 1;
  if (max_norm > 0) {
    factor = max_norm / (std::sqrt(control.squared_norm) / scale + 1e-6);
    if (factor >= 1) factor = 1;
  }
  control.gradient_scale = static_cast<float>(factor / scale);
  const bool skipped = control.skip != 0;
  control.skipped_steps += skipped ? 1 : 0;
  control.applied_steps += skipped ? 0 : 1;
  control.skipped_in_a_row = skipped ? control.skipped_in_a_row + 1 : 0;
  control.good_steps = skipped || !rule.on() ? 0 : control.good_steps + 1;
  if (rule.kind != Kind::kDynamic) {
    control.good_steps = 0;
  } else if (skipped) {
    control.loss_scale = std::max(control.loss_scale * rule.backoff, rule.lowest);
  } else if (control.good_steps >= rule.interval) {
    control.loss_scale = std::min(control.loss_scale * rule.growth, rule.highest);
    control.good_steps = 0;
  }
}

ScaleCounters scale_counters(const LossScaleRule& rule, const StepControl& control) {
  if (!rule.on()) return {};
  ScaleCounters counters{{kSkipped, control.skipped_steps}, {kInARow, control.skipped_in_a_row}};
  if (rule.kind == Kind::kDynamic) {  // a power of two from 1 on: stored as an integer
    counters.emplace_back(kScale, static_cast<std::int64_t>(control.loss_scale));
    counters.emplace_back(kGood, control.good_steps);
  }
  return counters;
}

void restore_scale(const LossScaleRule& rule, const ScaleCounters& saved, StepControl& control) {
  if (!rule.on()) return;
  for (const auto& [name, value] : saved) {
    if (name == kSkipped) control.skipped_steps = std::max<std::int64_t>(0, value);
    if (name == kInARow)
      control.skipped_in_a_row =
          static_cast<std::int32_t>(std::clamp<std::int64_t>(value, 0, 1 << 30));
    if (rule.kind != Kind::kDynamic) continue;
    if (name == kScale)
      control.loss_scale = std::clamp(static_cast<float>(value), rule.lowest, rule.highest);
    if (name == kGood)
      control.good_steps =
          static_cast<std::int32_t>(std::clamp<std::int64_t>(value, 0, rule.interval));
  }
}

}  // namespace engine
