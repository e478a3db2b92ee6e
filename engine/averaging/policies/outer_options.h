// The options of the outer step that follows an averaging of parameters.
#pragma once

#include <optional>

namespace engine {

// Without a value, outer_rate() determines the rate or the momentum (outer_rate.h).
struct OuterOptions {
  std::optional<double> lr = 1, momentum = 0;
  bool nesterov = false;
  bool over_inner_rate = false;  // the step is divided by the inner learning rate before it enters
                                 // the momentum, and multiplied by it when it is applied (SlowMo)

  bool has_momentum() const { return momentum != std::optional<double>(0); }
};

struct SlowMoOptions {
  double alpha = 1, beta = 0.5;  // slow learning rate and momentum
};

}  // namespace engine
