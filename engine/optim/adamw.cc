// AdamW (Loshchilov and Hutter, 2019) as in torch.optim.AdamW.
#include "engine/optim/elementwise_optimizer.h"

namespace engine {
namespace {

std::unique_ptr<Optimizer> make(const OptimizerSpec& spec, const OptimizerParts& parts) {
  const OptimizerSettings& s = parts.settings;
  const ops::AdamwStep step{.beta1 = s.at("adam-beta1"),
                            .beta2 = s.at("adam-beta2"),
                            .eps = s.at("adam-eps"),
                            .weight_decay = s.at("weight-decay")};
  return make_elementwise(spec, step, spec.states, parts);
}

}  // namespace

using Kind = OptimizerOption::Kind;

extern const OptimizerSpec kAdamwSpec;
const OptimizerSpec kAdamwSpec{
    .name = "adamw",
    .lr = 0.001,
    .weight_decay = 0.01,
    .options = {{"adam-beta1", Kind::kFraction, 0.9, "decay of adamw's first moment"},
                {"adam-beta2", Kind::kFraction, 0.999, "decay of adamw's second moment"},
                {"adam-eps", Kind::kPositive, 1e-8, "epsilon of adamw"}},
    .states = {{"exp_avg", StateRole::kFirstMoment}, {"exp_avg_sq", StateRole::kSecondMoment}},
    .on_cuda = true,
    .by_ranges = true,
    .make = make};

}  // namespace engine
