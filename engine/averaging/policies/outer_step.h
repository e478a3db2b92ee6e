// The outer optimizer of DiLoCo and SlowMo: it uses the change of K local steps and one averaging
// as one gradient.
#pragma once

#include <vector>

#include "engine/averaging/math/state_math.h"
#include "engine/averaging/policies/averaging_policies.h"
#include "engine/averaging/policies/fragments.h"
#include "engine/averaging/policies/outer_rate.h"

namespace engine {

// Let d = anchor - mean, where anchor is the common starting point of the replicas:
//   DiLoCo (Douillard et al., 2023, algorithm 1), with torch.optim.SGD without dampening as outer
//   optimizer:
//     v = momentum * v + d;  anchor -= lr * (nesterov ? d + momentum * v : v)
//   A step with a momentum of 0, as the first one by the rule of outer_rate(), leaves v unchanged.
//   SlowMo (Wang et al., 2019, algorithm 1), with g the inner rate, beta = momentum and alpha = lr:
//     u = beta * u + d / g;  anchor -= alpha * g * u
// The replicas then continue from the anchor. All ranks compute the same bits, so nothing is
// exchanged.
class OuterStep {
 public:
  // Both arguments must outlive the step. Allocates the anchor, and the momentum if it is used.
  OuterStep(ParameterBuffer& parameters, KernelContext& context, const OuterOptions& options);

  // Stores the starting point of the replicas once. Called before the first update. `home`:
  // calculates with the state of a device; null: in host memory.
  void start(StateMath* home = nullptr);
  bool started() const { return started_; }
  // On entry the values hold the mean of the replicas after a period of `every` steps, on return
  // the result. Overwrites the gradients. If the inner rate is a divisor and is 0, the mean is the
  // result.
  void apply(double inner_lr, std::int64_t every, StateMath* home = nullptr);

  // The same for a part of the parameters, whose mean is in `mean`: only the anchor changes.
  void apply_part(const Elements& part, const FlatBuffer& mean, const OuterRate& rate,
                  StateMath* home = nullptr);
  // REQUIRES: started.
  TensorView anchor(const Elements& part) const { return anchor_.part(part.first, part.count); }

  std::int64_t steps() const { return steps_; }
  std::vector<PolicyState> state();
  // Returns the memory of the state, with which this calculates where the state is.
  std::vector<HomeBuffer> buffers_at_home();
  void add_counters(PolicyCounters& counters) const;
  // `fragments`: into how many parts the policy divides the parameters, each with steps of its own.
  // After another number, each parameter continues with the mean number of its steps.
  void restore_counters(const PolicyCounters& counters, std::int64_t fragments = 1);

 private:
  // `inner_lr` is 1 if it does not divide.
  void move_anchor(StateMath& math, const Elements& part, const FlatBuffer& mean,
                   const OuterRate& rate, double inner_lr);
  StateMath& math(StateMath* home) { return home != nullptr ? *home : host_; }
  // Frozen parameters have no anchor.
  TensorView trained() const { return parameters_.values.part(0, anchor_.size()); }

  ParameterBuffer& parameters_;
  HostMath host_;
  const OuterOptions options_;
  FlatBuffer anchor_, momentum_;
  bool started_ = false;
  std::int64_t steps_ = 0;
};

}  // namespace engine
