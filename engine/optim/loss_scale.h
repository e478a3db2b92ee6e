// Loss scaling on the host: its rule as text, its state in checkpoints, and the reference
// implementation of the kernels.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/ops/optim_step/step_numbers.h"

namespace engine {

// Parses "off" (or ""), "dynamic" (starting at 65536, PyTorch's initial scale), or a fixed scale
// above 0, e.g. "1024". Throws ModelError.
LossScaleRule parse_loss_scale(std::string_view text);
std::string to_string(const LossScaleRule& rule);  // in the format of parse_loss_scale()

// Returns the control at the start of a run that has already applied `steps` updates.
StepControl first_control(const LossScaleRule& rule, std::int64_t steps = 0);

// Updates `control` on the CPU as ops::settle_step() does, with the same bits.
void settle_on_host(const LossScaleRule& rule, double max_norm, StepControl& control);

// The values that a checkpoint must store besides the optimizer's steps, by name
// ("scaler.loss_scale"), and their restoration: missing values stay as in first_control(). The
// saved scale is used only if both runs adapt it.
using ScaleCounters = std::vector<std::pair<std::string, std::int64_t>>;
ScaleCounters scale_counters(const LossScaleRule& rule, const StepControl& control);
void restore_scale(const LossScaleRule& rule, const ScaleCounters& saved, StepControl& control);

}  // namespace engine
