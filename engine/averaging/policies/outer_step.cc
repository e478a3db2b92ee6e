// Both outer optimizers call the SGD kernel with different coefficients.
#include "engine/averaging/policies/outer_step.h"

#include <cstring>

#include "engine/averaging/sums/flat_math.h"
#include "engine/ops/optim_step/optimizer_step.h"

namespace engine {

// Frozen parameters have no anchor.
void OuterStep::copy_trained(const FlatBuffer& from, const FlatBuffer& to) const {
  if (anchor_.bytes() > 0) std::memcpy(to.data(), from.data(), anchor_.bytes());
}

OuterStep::OuterStep(ParameterBuffer& parameters, KernelContext& context,
                     const OuterOptions& options)
    : parameters_(parameters),
      context_(context),
      options_(options),
      anchor_(FlatBuffer::like(parameters.gradients)) {
  if (options.momentum != 0) momentum_ = FlatBuffer::like(parameters.gradients);
}

void OuterStep::start() {
  if (started_) return;
  copy_trained(parameters_.values, anchor_);
  started_ = true;
}

void OuterStep::apply(double inner_lr) {
  require(started_, "an outer step without a start");
  if (options_.over_inner_rate && inner_lr == 0) return copy_trained(parameters_.values, anchor_);
  subtract_flat(context_, anchor_, parameters_.values, parameters_.gradients);
  // The momentum starts at zero, so that the first step equals PyTorch's.
  const double rate = options_.over_inner_rate ? inner_lr : 1;
  const ops::SgdStep step{.lr = options_.lr * rate,
                          .momentum = options_.momentum,
                          .weight_decay = 0,
                          .gradient_scale = 1 / rate,
                          .nesterov = options_.nesterov,
                          .first = false};
  ops::sgd_step(context_, step, parameters_.gradients.flat(),
                options_.momentum != 0 ? momentum_.flat() : TensorView{}, anchor_.flat());
  copy_trained(anchor_, parameters_.values);
  ++steps_;
}

std::vector<PolicyState> OuterStep::state() {
  std::vector<PolicyState> state{{"outer_anchor", &anchor_, false}};
  if (options_.momentum != 0)
    state.push_back(
        {options_.over_inner_rate ? "slow_momentum" : "outer_momentum", &momentum_, false});
  return state;
}

void OuterStep::add_counters(PolicyCounters& counters) const {
  counters.emplace_back("outer_started", started_ ? 1 : 0);
  counters.emplace_back("outer_steps", steps_);
}

void OuterStep::restore_counters(const PolicyCounters& counters) {
  started_ = find_counter(counters, "outer_started", 0) != 0;
  steps_ = find_counter(counters, "outer_steps", 0);
}

}  // namespace engine
