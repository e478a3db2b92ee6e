// Implements what all optimizers share: their construction by name, and the clip factor.
#include "engine/optim/optimizer.h"

#include <cmath>

#include "engine/ops/optim_step/optimizer_step.h"

namespace engine {

TensorView Optimizer::DeviceStep::halves(std::int64_t first, std::int64_t count) const {
  if (half_copy == nullptr) return {};
  return {static_cast<std::byte*>(half_copy) + static_cast<std::size_t>(first) * size_of(half),
          half, Shape{count}, values.device()};
}

std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const OptimizerSettings& changed,
                                          const FlatBuffer& values) {
  const OptimizerSpec& spec = *find_optimizer(name);
  OptimizerSettings settings = default_settings(spec);
  for (const auto& [option, value] : changed) settings.at(option) = value;
  return spec.make(spec, {settings, values, {}});
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
