// Lists the optimizers, and derives properties from their descriptors.
#include <algorithm>

#include "engine/optim/optimizer_spec.h"

namespace engine {

extern const OptimizerSpec kSgdSpec, kAdamwSpec, kLionSpec, kMuonSpec;

std::span<const OptimizerSpec* const> optimizers() {
  static const OptimizerSpec* const kAll[] = {&kSgdSpec, &kAdamwSpec, &kLionSpec, &kMuonSpec};
  return kAll;
}

const OptimizerSpec* find_optimizer(std::string_view name) {
  const auto found =
      std::ranges::find(optimizers(), name, [](const OptimizerSpec* spec) { return spec->name; });
  return found == optimizers().end() ? nullptr : *found;
}

OptimizerSettings default_settings(const OptimizerSpec& spec) {
  OptimizerSettings settings{{"lr", spec.lr}, {"weight-decay", spec.weight_decay}};
  for (const OptimizerOption& option : spec.options) settings[option.name] = option.initial;
  return settings;
}

std::vector<OptimizerState> states_of(const OptimizerSpec& spec,
                                      const OptimizerSettings& settings) {
  std::vector<OptimizerState> states;
  for (const OptimizerState& state : spec.states)
    if (state.needs == nullptr || settings.find(state.needs)->second != 0) states.push_back(state);
  return states;
}

}  // namespace engine
