// Options of optimizers, made from their descriptors (engine/optim/optimizer_spec.h).
#pragma once

#include <string>
#include <vector>

#include "tools/options/option_rules.h"
#include "tools/options/run_config.h"

namespace tools {

// --optimizer, --lr and --weight-decay, then each optimizer's own. Their texts live as long as the
// program.
std::vector<OptionSpec> optimizer_option_rows();

// Options with the optimizer that each belongs to.
struct OptimizerOwner {
  const char *option, *optimizer;
};
std::vector<OptimizerOwner> optimizer_option_owners();

// Enters what --lr and --weight-decay are by default with the optimizer chosen.
void complete_by_optimizer(ConfigValues& values);

// Checks and reads the chosen optimizer's options, and --average-state, which must find a state.
// Throws ConfigError.
void read_optimizer(const ValueReader& read, RunConfig& config);

}  // namespace tools
