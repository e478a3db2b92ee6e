// SGD with momentum and Nesterov's variant, as in torch.optim.SGD.
#include "engine/optim/elementwise_optimizer.h"

namespace engine {
namespace {

std::unique_ptr<Optimizer> make(const OptimizerSpec& spec, const OptimizerParts& parts) {
  const OptimizerSettings& s = parts.settings;
  const ops::SgdStep step{.momentum = s.at("momentum"),
                          .weight_decay = s.at("weight-decay"),
                          .nesterov = s.at("nesterov") != 0};
  return make_elementwise(spec, ops::any_sgd(step), states_of(spec, s), parts);
}

}  // namespace

using Kind = OptimizerOption::Kind;

extern const OptimizerSpec kSgdSpec;
const OptimizerSpec kSgdSpec{
    .name = "sgd",
    .lr = 0.05,
    .weight_decay = 0,
    .options = {{"momentum", Kind::kFraction, 0.9, "SGD momentum"},
                {"nesterov", Kind::kFlag, 0, "Nesterov momentum for sgd", "momentum"}},
    .states = {{"momentum", StateRole::kFirstMoment, "momentum"}},
    .on_cuda = true,
    .by_ranges = true,
    .make = make};

}  // namespace engine
