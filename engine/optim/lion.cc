// Lion (Chen et al., 2023, "Symbolic Discovery of Optimization Algorithms").
#include "engine/optim/elementwise_optimizer.h"

namespace engine {
namespace {

std::unique_ptr<Optimizer> make(const OptimizerSpec& spec, const OptimizerParts& parts) {
  const OptimizerSettings& s = parts.settings;
  const ops::LionStep step{.beta1 = s.at("lion-beta1"),
                           .beta2 = s.at("lion-beta2"),
                           .weight_decay = s.at("weight-decay")};
  return make_elementwise(spec, step, spec.states, parts);
}

}  // namespace

using Kind = OptimizerOption::Kind;

extern const OptimizerSpec kLionSpec;
const OptimizerSpec kLionSpec{
    .name = "lion",
    .lr = 0.0001,
    .weight_decay = 0,
    .options = {{"lion-beta1", Kind::kFraction, 0.9, "weight of the momentum in lion's update"},
                {"lion-beta2", Kind::kFraction, 0.99, "decay of lion's momentum"}},
    .states = {{"exp_avg", StateRole::kFirstMoment}},
    .on_cuda = true,
    .by_ranges = true,
    .make = make};

}  // namespace engine
