// The operands of losses of regression predictions; regression_loss.h describes them.
#pragma once

#include "engine/core/tensor_view.h"

namespace engine::ops {

enum class RegressionLoss { kSquared, kAbsolute, kHuber, kLogistic };

struct RegressionLossForward {
  TensorView prediction, target, loss;
  TensorView gradient{};  // stored for backward; absent in inference
  RegressionLoss kind = RegressionLoss::kSquared;
};

}  // namespace engine::ops
