// Calculations of an averaging, where the state is: in host memory, or on a device.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/optim_step/sgd_update.h"
#include "engine/optim/optimizer_shards.h"

namespace backends {
class DeviceCommunicator;
}

namespace engine {

// Operands are views of the same dtype and length, always of host memory. On a device they stand
// for the device's memory whose mirror they are, so that a policy is written once. Both kinds round
// alike. One thread at a time, except where stated.
class StateMath {
 public:
  StateMath() = default;
  virtual ~StateMath() = default;
  StateMath(const StateMath&) = delete;
  StateMath& operator=(const StateMath&) = delete;

  virtual void copy(const TensorView& from, const TensorView& to) = 0;
  // to = factor * from; `to` may be `from`.
  virtual void scale(double factor, const TensorView& from, const TensorView& to) = 0;
  // to = a - b; `to` may be a or b.
  virtual void subtract(const TensorView& a, const TensorView& b, const TensorView& to) = 0;
  // to = x * a + y * b, with rounded products; `to` may be a or b.
  virtual void combine(double x, const TensorView& a, double y, const TensorView& b,
                       const TensorView& to) = 0;
  // ops::sgd_step(), not the first; `velocity` is empty without momentum.
  virtual void sgd_step(const ops::SgdStep& step, const TensorView& gradient,
                        const TensorView& velocity, const TensorView& value) = 0;
  // In f64, in the order of ops::sum_of_squares().
  virtual double sum_of_squares(const TensorView& values) = 0;

  // For exchanges with other ranks by host memory. fetch() returns when the memory of the view
  // holds the values; store() replaces the values by what it holds, and reads it until the next
  // fetch() or wait() ends.
  virtual void fetch(const TensorView& values) = 0;
  virtual void store(const TensorView& values) = 0;
  // Returns when all calculations have ended.
  virtual void wait() = 0;

  // Returns true if the ranks' devices sum values without host memory.
  virtual bool sums_on_devices() const { return false; }
  // Replaces the values, whose calculation has ended, by their sum over all ranks, or over those of
  // `some` if it is not null, and returns when it is complete. Any thread, while the object's own
  // calculates with other values. Throws PeerError; the values are then undefined. REQUIRES:
  // sums_on_devices(), or `some`.
  virtual void sum_on_devices(const TensorView& values, backends::DeviceCommunicator* some);

  // Returns true if codes of sums are computed where the state is, and not in host memory.
  virtual bool sums_codes() const { return false; }
  // Replaces a range of `values` by its sum as codes, as CodedSum::sum(), and of `error` by that of
  // `rest`, when the sum is complete. The views are of whole buffers, whose calculations have
  // ended. Any thread, as sum_on_devices(). Throws PeerError; the error is then unchanged.
  // REQUIRES: sums_codes().
  struct CodedViews {
    TensorView values, error, rest;
  };
  virtual void sum_codes(const CodedViews& views, Elements range, std::int64_t round);
};

// Uses the threads of the context, which must outlive this object.
class HostMath final : public StateMath {
 public:
  explicit HostMath(KernelContext& context) : context_(context) {}
  void copy(const TensorView& from, const TensorView& to) override;
  void scale(double factor, const TensorView& from, const TensorView& to) override;
  void subtract(const TensorView& a, const TensorView& b, const TensorView& to) override;
  void combine(double x, const TensorView& a, double y, const TensorView& b,
               const TensorView& to) override;
  void sgd_step(const ops::SgdStep& step, const TensorView& gradient, const TensorView& velocity,
                const TensorView& value) override;
  double sum_of_squares(const TensorView& values) override;
  void fetch(const TensorView& /*values*/) override {}
  void store(const TensorView& /*values*/) override {}
  void wait() override {}

 private:
  KernelContext& context_;
};

}  // namespace engine
