// Loss scaling on the host's side: its rule as text, what of it a checkpoint holds, and the
// reference of what kernels do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/ops/optim_step/step_numbers.h"

namespace engine {

// "off" (also ""), "dynamic" (from 65536, PyTorch's first scale), or a fixed scale above 0, as
// "1024". Throws ModelError.
LossScaleRule parse_loss_scale(std::string_view text);
std::string to_string(const LossScaleRule& rule);  // what parse_loss_scale() reads

// At the start of a training that has applied `steps` updates already.
StepControl first_control(const LossScaleRule& rule, std::int64_t steps = 0);

// What ops::settle_step() does to `control`, on the CPU: the same bits.
void settle_on_host(const LossScaleRule& rule, double max_norm, StepControl& control);

// What a checkpoint must hold besides the optimizer's steps, by name ("scaler.loss_scale"), and
// back: what is missing stays as first_control() has it. The scale is the saved one only where both
// runs adapt it.
using ScaleCounters = std::vector<std::pair<std::string, std::int64_t>>;
ScaleCounters scale_counters(const LossScaleRule& rule, const StepControl& control);
void restore_scale(const LossScaleRule& rule, const ScaleCounters& saved, StepControl& control);

}  // namespace engine
