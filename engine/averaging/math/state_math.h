// Calculations of an averaging, where the state is: in host memory, or on a device.
#pragma once

#include "backends/communicator.h"
#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/optim_step/sgd_update.h"

namespace engine {

// Operands are views of the same dtype and length, always of host memory. On a device they stand
// for the device's memory whose mirror they are, so that a policy is written once. Both kinds round
// alike. One thread at a time.
class StateMath {
 public:
  StateMath() = default;
  virtual ~StateMath() = default;
  StateMath(const StateMath&) = delete;
  StateMath& operator=(const StateMath&) = delete;

  virtual void copy(const TensorView& from, const TensorView& to) = 0;
  // to = factor * from
  virtual void scale(double factor, const TensorView& from, const TensorView& to) = 0;
  // to = a - b; `to` may be a or b.
  virtual void subtract(const TensorView& a, const TensorView& b, const TensorView& to) = 0;
  // ops::sgd_step(), not the first; `velocity` is empty without momentum.
  virtual void sgd_step(const ops::SgdStep& step, const TensorView& gradient,
                        const TensorView& velocity, const TensorView& value) = 0;
  // In f64, in the order of ops::sum_of_squares().
  virtual double sum_of_squares(const TensorView& values) = 0;
  // Replaces the values by their sum over all ranks, and returns when it is complete. Throws
  // PeerError; the values are then undefined.
  virtual void sum_over_ranks(const TensorView& values) = 0;
};

class HostMath final : public StateMath {
 public:
  // `communicator` may be null if sum_over_ranks() is not called. Both must outlive this object.
  HostMath(KernelContext& context, backends::Communicator* communicator)
      : context_(context), communicator_(communicator) {}
  void copy(const TensorView& from, const TensorView& to) override;
  void scale(double factor, const TensorView& from, const TensorView& to) override;
  void subtract(const TensorView& a, const TensorView& b, const TensorView& to) override;
  void sgd_step(const ops::SgdStep& step, const TensorView& gradient, const TensorView& velocity,
                const TensorView& value) override;
  double sum_of_squares(const TensorView& values) override;
  void sum_over_ranks(const TensorView& values) override;

 private:
  KernelContext& context_;
  backends::Communicator* const communicator_;
};

}  // namespace engine
