// Implements the common parts of all optimizers: typed options and the clip factor.
#include "engine/optim/optimizer.h"

#include <cmath>

#include "engine/ops/optim_step/optimizer_step.h"

namespace engine {

TensorView Optimizer::DeviceStep::halves(std::int64_t first, std::int64_t count) const {
  if (half_copy == nullptr) return {};
  return {static_cast<std::byte*>(half_copy) + static_cast<std::size_t>(first) * size_of(half),
          half, Shape{count}, values.device()};
}

namespace {

std::unique_ptr<Optimizer> make(std::string_view name, const OptimizerSettings& settings,
                                const FlatBuffer& values) {
  const OptimizerSpec& spec = *find_optimizer(name);
  return spec.make(spec, {settings, values, {}});
}

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options, const FlatBuffer& values) {
  return make("sgd",
              {{"momentum", options.momentum},
               {"weight-decay", options.weight_decay},
               {"nesterov", options.nesterov}},
              values);
}

std::unique_ptr<Optimizer> make_adamw(const AdamwOptions& options, const FlatBuffer& values) {
  return make("adamw",
              {{"adam-beta1", options.beta1},
               {"adam-beta2", options.beta2},
               {"adam-eps", options.eps},
               {"weight-decay", options.weight_decay}},
              values);
}

double gradient_norm(KernelContext& context, const FlatBuffer& gradients) {
  return std::sqrt(ops::sum_of_squares(context, gradients.flat()));
}

double clip_factor(double norm, double max_norm) {
  if (max_norm <= 0) return 1;
  const double factor = max_norm / (norm + 1e-6);
  return factor >= 1 ? 1 : factor;
}

}  // namespace engine
