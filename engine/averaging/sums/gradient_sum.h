// How gradients are summed over the ranks: as they are, or compressed with error feedback.
//
// Error feedback: what compression leaves out of a step is kept in a memory on each rank and added
// to the next step's gradient (Seide et al., 2014; Stich et al., 2018; Karimireddy et al., 2019).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/communicator.h"
#include "engine/averaging/sums/policy_state.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/optim/optimizer.h"

namespace engine {

class GradientSum {
 public:
  virtual ~GradientSum() = default;
  // What to add to "averaged the gradients of ... in each of N steps": " (top-k 0.01)". May be "".
  virtual std::string note() const = 0;

  // The elements [first, first + count) of the gradients become their sum over all ranks, the same
  // bits on every rank; of a scattered sum, those that this rank updates. Called once a step for
  // each of them, from one thread at a time. Collective. Does not allocate.
  virtual void sum(std::int64_t first, std::int64_t count) = 0;
  // Whether sum() wants all elements at once, after backward, and not bucket by bucket.
  virtual bool whole() const { return false; }
  // Of the sums, as GradientExchange has it.
  virtual double norm(KernelContext& context, const FlatBuffer& gradients) {
    return gradient_norm(context, gradients);
  }

  virtual std::vector<PolicyState> state() { return {}; }
  std::int64_t bytes_sent() const { return bytes_sent_; }
  void set_bytes_sent(std::int64_t bytes) { bytes_sent_ = bytes; }

 protected:
  std::int64_t bytes_sent_ = 0;
};

// All of them: communicator and gradients outlive the sum. Allocate their memory when they are
// made.
std::unique_ptr<GradientSum> make_plain_sum(backends::Communicator& communicator,
                                            FlatBuffer& gradients);

// The same bits, but each rank gets what it updates, and the rest is undefined. `shares`, by
// shard_elements(), with buckets that are cut alike, outlive the sum.
std::unique_ptr<GradientSum> make_scattered_sum(backends::Communicator& communicator,
                                                FlatBuffer& gradients,
                                                const OptimizerShards& shares);

// Half the bytes: gradients are rounded to bfloat16, which is also what the ranks' contributions
// are added in; rounding on the way in is fed back, rounding of the addition is not.
std::unique_ptr<GradientSum> make_bf16_sum(backends::Communicator& communicator,
                                           FlatBuffer& gradients);

// The `ratio` (0, 1] of all elements that are largest in magnitude on each rank, as values with
// their indices; the others wait. Source: Stich et al., 2018 (sparsified SGD with memory); Lin et
// al., 2017 (deep gradient compression), without its momentum correction and clipping.
std::unique_ptr<GradientSum> make_top_k_sum(backends::Communicator& communicator,
                                            FlatBuffer& gradients, double ratio);

// PowerSGD (Vogels et al., 2019, algorithms 1 and 2): every parameter as a matrix M [rows, columns]
// is sent as P = M Q and Q = M^T P of `rank` columns, Q starting from the step before. Vectors, and
// matrices that would not shrink, go as they are.
std::unique_ptr<GradientSum> make_power_sgd_sum(backends::Communicator& communicator,
                                                FlatBuffer& gradients, KernelContext& context,
                                                int rank);

}  // namespace engine
