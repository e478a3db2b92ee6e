// The targets of a batch as the loss of a plan reads them: in its type, and times their weights.
#pragma once

#include "engine/core/arena.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/loss/row_weights.h"

namespace engine {

class BatchTargets {
 public:
  // `planned`: the plan's tensor, without memory if the loss reads the caller's targets.
  void plan(const TensorView& planned) {
    is_read_in_place_ = planned.data == nullptr;
    targets_ = planned;
    if (!is_read_in_place_) return;
    memory_ = Arena(planned.bytes(), planned.device, "workspace");
    targets_.data = memory_.data();
  }

  // Returns the targets that the loss reads. Weights that are multiplied here become absent.
  const void* bind(KernelContext& context, const TensorView& given, TensorView& weights) {
    if (is_read_in_place_ && !weights) return given.data;
    targets_.shape = given.shape;
    ops::cast(context, given, targets_);
    if (weights) ops::weigh_rows(context, weights, targets_);
    weights.data = nullptr;
    return targets_.data;
  }

 private:
  TensorView targets_;
  Arena memory_;
  bool is_read_in_place_ = true;
};

}  // namespace engine
