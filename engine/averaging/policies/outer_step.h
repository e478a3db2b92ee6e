// The outer optimizer of DiLoCo and SlowMo: what K local steps and an averaging have changed is
// taken as one gradient.
#pragma once

#include <vector>

#include "engine/averaging/policies/averaging_policies.h"

namespace engine {

// With d = anchor - mean, where anchor is where the replicas started together:
//   DiLoCo (Douillard et al., 2023, algorithm 1), the outer optimizer being torch.optim.SGD without
//   dampening:
//     v = momentum * v + d;  anchor -= lr * (nesterov ? d + momentum * v : v)
//   SlowMo (Wang et al., 2019, algorithm 1), g being the inner rate, beta = momentum and alpha =
//   lr:
//     u = beta * u + d / g;  anchor -= alpha * g * u
// and the replicas go on from the anchor. All ranks compute the same bits, so nothing is exchanged.
class OuterStep {
 public:
  // Both outlive the step. Allocates the anchor, and the momentum's memory where there is momentum.
  OuterStep(ParameterBuffer& parameters, KernelContext& context, const OuterOptions& options);

  // Remembers where the replicas start, once. Called before the first update.
  void start();
  bool started() const { return started_; }
  // The values hold the replicas' mean, and then the result. Overwrites the gradients. With a rate
  // of 0 where the inner rate divides, the mean is the result.
  void apply(double inner_lr);

  std::int64_t steps() const { return steps_; }
  std::vector<PolicyState> state();
  void add_counters(PolicyCounters& counters) const;
  void restore_counters(const PolicyCounters& counters);

 private:
  void copy_trained(const FlatBuffer& from, const FlatBuffer& to) const;

  ParameterBuffer& parameters_;
  KernelContext& context_;
  const OuterOptions options_;
  FlatBuffer anchor_, momentum_;
  bool started_ = false;
  std::int64_t steps_ = 0;
};

}  // namespace engine
