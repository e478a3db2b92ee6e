// Defines how gradients are summed over the ranks: uncompressed, or compressed with error feedback.
//
// Error feedback: each rank keeps the part of the gradient that compression drops and adds it to
// the next step's gradient (Seide et al., 2014; Stich et al., 2018; Karimireddy et al., 2019).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/communicator.h"
#include "engine/averaging/codes/lossy_code.h"
#include "engine/averaging/sums/policy_state.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/optim/optimizer.h"

namespace engine {

class GradientSum {
 public:
  virtual ~GradientSum() = default;
  // Returns a suffix for "averaged the gradients of ... in each of N steps": " (top-k 0.01)", or
  // "".
  virtual std::string note() const = 0;

  // Called before the sums of a step; `step` counts the steps of this sum, also over resumptions.
  virtual void begin_step(std::int64_t /*step*/) {}
  // Replaces the elements [first, first + count) of the gradients by their sum over all ranks, with
  // the same bits on every rank; a scattered sum does so for the elements that this rank updates.
  // Each range is summed once per step, from one thread at a time. Collective. Does not allocate.
  virtual void sum(std::int64_t first, std::int64_t count) = 0;
  // Returns true if sum() needs all elements at once, after backward, instead of buckets.
  virtual bool whole() const { return false; }
  // The norm of the sums; see GradientExchange.
  virtual double norm(KernelContext& context, const FlatBuffer& gradients) {
    return gradient_norm(context, gradients);
  }

  virtual std::vector<PolicyState> state() { return {}; }
  std::int64_t bytes_sent() const { return bytes_sent_; }
  void set_bytes_sent(std::int64_t bytes) { bytes_sent_ = bytes; }

 protected:
  std::int64_t bytes_sent_ = 0;
};

// For all sums below: communicator and gradients must outlive the sum. The factories allocate all
// memory.
std::unique_ptr<GradientSum> make_plain_sum(backends::Communicator& communicator,
                                            FlatBuffer& gradients);

// Computes the same bits as the plain sum, but each rank receives only the part that it updates,
// and the rest is undefined. `shares` comes from shard_elements() with the same buckets and must
// outlive the sum.
std::unique_ptr<GradientSum> make_scattered_sum(backends::Communicator& communicator,
                                                FlatBuffer& gradients,
                                                const OptimizerShards& shares);

// Halves the bytes: gradients are rounded to bfloat16, and the contributions of the ranks are added
// in bfloat16. Error feedback covers the rounding of the input, but not that of the addition.
std::unique_ptr<GradientSum> make_bf16_sum(backends::Communicator& communicator,
                                           FlatBuffer& gradients);

// Sends the fraction `ratio` (0, 1] of all elements that are largest in magnitude on each rank, as
// values with their indices; error feedback keeps the others. Source: Stich et al., 2018
// (sparsified SGD with memory); Lin et al., 2017 (deep gradient compression), without its momentum
// correction and clipping.
std::unique_ptr<GradientSum> make_top_k_sum(backends::Communicator& communicator,
                                            FlatBuffer& gradients, double ratio);
// Returns how many of the elements, or of those of all parameters, a rank sends.
std::int64_t top_k_elements(std::int64_t elements, double ratio);
std::int64_t top_k_elements(const FlatBuffer& gradients, double ratio);
// Returns the bytes that a rank sends in a step.
std::size_t top_k_bytes(const FlatBuffer& gradients, double ratio);
std::string top_k_note(double ratio);  // as GradientSum::note()
// Throws Error unless the index is that of one of the elements.
void check_top_k_index(std::int64_t index, std::int64_t elements);

// PowerSGD (Vogels et al., 2019, algorithms 1 and 2): every parameter as a matrix M [rows, columns]
// is sent as P = M Q and Q = M^T P of `rank` columns, where Q starts from the previous step's
// value. Vectors, and matrices that would not shrink, are sent uncompressed.
// Defined in engine/averaging/low_rank/power_sgd_sum.cc.
std::unique_ptr<GradientSum> make_power_sgd_sum(backends::Communicator& communicator,
                                                FlatBuffer& gradients, KernelContext& context,
                                                int rank);

// Sends quantized or sparse gradients (lossy_code.h) and sums the decoded ones in f32 or f64.
std::unique_ptr<GradientSum> make_coded_sum(backends::Communicator& communicator,
                                            FlatBuffer& gradients, KernelContext& context,
                                            const LossyOptions& options);

}  // namespace engine
