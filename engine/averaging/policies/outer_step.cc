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
  if (options.has_momentum()) momentum_ = FlatBuffer::like(parameters.gradients);
}

void OuterStep::start() {
  if (started_) return;
  copy_trained(parameters_.values, anchor_);
  started_ = true;
}

void OuterStep::apply(double inner_lr, std::int64_t every) {
  require(started_, "an outer step without a start");
  if (options_.over_inner_rate && inner_lr == 0) return copy_trained(parameters_.values, anchor_);
  move_anchor({.first = 0, .count = anchor_.size()}, parameters_.values,
              outer_rate(options_, steps_, every), options_.over_inner_rate ? inner_lr : 1);
  copy_trained(anchor_, parameters_.values);
}

void OuterStep::apply_part(const Elements& part, const FlatBuffer& mean, const OuterRate& rate) {
  require(started_, "an outer step without a start");
  move_anchor(part, mean, rate, 1);
}

void OuterStep::move_anchor(const Elements& part, const FlatBuffer& mean, const OuterRate& rate,
                            double inner_lr) {
  const auto rows = [&part](const FlatBuffer& of) { return of.part(part.first, part.count); };
  const TensorView change = rows(parameters_.gradients);
  subtract_rows(context_, rows(anchor_), rows(mean), change);
  // The momentum starts at zero, so that the first step equals PyTorch's.
  const ops::SgdStep step{.lr = rate.lr * inner_lr,
                          .momentum = rate.momentum,
                          .weight_decay = 0,
                          .gradient_scale = 1 / inner_lr,
                          .nesterov = options_.nesterov,
                          .first = false};
  ops::sgd_step(context_, step, change, rate.momentum != 0 ? rows(momentum_) : TensorView{},
                rows(anchor_));
  ++steps_;
}

std::vector<PolicyState> OuterStep::state() {
  std::vector<PolicyState> state{{"outer_anchor", &anchor_, false}};
  if (options_.has_momentum())
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
