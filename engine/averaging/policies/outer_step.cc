// Both outer optimizers call the SGD kernel with different coefficients.
#include "engine/averaging/policies/outer_step.h"

#include <algorithm>

namespace engine {

OuterStep::OuterStep(ParameterBuffer& parameters, KernelContext& context,
                     const OuterOptions& options)
    : parameters_(parameters),
      host_(context),
      options_(options),
      anchor_(FlatBuffer::like(parameters.gradients)) {
  if (options.has_momentum()) momentum_ = FlatBuffer::like(parameters.gradients);
}

void OuterStep::start(StateMath* home) {
  if (started_) return;
  math(home).copy(trained(), anchor_.flat());
  started_ = true;
}

void OuterStep::apply(double inner_lr, std::int64_t every, StateMath* home) {
  require(started_, "an outer step without a start");
  if (options_.over_inner_rate && inner_lr == 0) return math(home).copy(trained(), anchor_.flat());
  move_anchor(math(home), {.first = 0, .count = anchor_.size()}, parameters_.values,
              outer_rate(options_, steps_, every), options_.over_inner_rate ? inner_lr : 1);
  math(home).copy(anchor_.flat(), trained());
}

void OuterStep::apply_part(const Elements& part, const FlatBuffer& mean, const OuterRate& rate,
                           StateMath* home) {
  require(started_, "an outer step without a start");
  move_anchor(math(home), part, mean, rate, 1);
}

void OuterStep::move_anchor(StateMath& math, const Elements& part, const FlatBuffer& mean,
                            const OuterRate& rate, double inner_lr) {
  const auto rows = [&part](const FlatBuffer& of) { return of.part(part.first, part.count); };
  const TensorView change = rows(parameters_.gradients);
  math.subtract(rows(anchor_), rows(mean), change);
  // The momentum starts at zero, so that the first step equals PyTorch's.
  const ops::SgdStep step{.lr = rate.lr * inner_lr,
                          .momentum = rate.momentum,
                          .weight_decay = 0,
                          .gradient_scale = 1 / inner_lr,
                          .nesterov = options_.nesterov,
                          .first = false};
  math.sgd_step(step, change, rate.momentum != 0 ? rows(momentum_) : TensorView{}, rows(anchor_));
  ++steps_;
}

std::vector<HomeBuffer> OuterStep::buffers_at_home() {
  std::vector<HomeBuffer> all;
  for (const PolicyState& state : state()) all.push_back({.buffer = state.buffer});
  return all;
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

void OuterStep::restore_counters(const PolicyCounters& counters, std::int64_t fragments) {
  started_ = find_counter(counters, "outer_started", 0) != 0;
  steps_ = find_counter(counters, "outer_steps", 0);
  const std::int64_t before = std::max<std::int64_t>(1, find_counter(counters, "fragments", 1));
  if (before != fragments) steps_ = steps_ / before * fragments;
}

}  // namespace engine
