// What keeps replicas in step: what happens to gradients during backward, to parameters after the update, and at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/communicator.h"
#include "engine/core/parameter_buffer.h"
#include "engine/kernels/kernel_context.h"

namespace engine {

// Samples of one step: on this rank and over all ranks. Known to every rank from the sampler, without communication.
struct StepCounts {
  std::int64_t local = 0, global = 0;
};

// Called by the trainer in this order in every step: loss_scale, gradients_ready (several times), finish_gradients,
// then after_update once the optimizer has run. All ranks make the same calls.
class AveragingPolicy {
 public:
  virtual ~AveragingPolicy() = default;
  virtual std::string_view name() const = 0;  // "grad"

  // The factor on the sum of this rank's losses that makes the result a mean: over the global batch where gradients
  // are averaged, over the local one otherwise. A rank without samples gets 0.
  virtual double loss_scale(const StepCounts& counts) const = 0;
  // The first `elements` of the gradient buffer are final on this rank.
  virtual void gradients_ready(std::int64_t /*elements*/) {}
  // Blocks until the gradients are what the optimizer shall see.
  virtual void finish_gradients() {}
  virtual void after_update(const StepCounts& /*counts*/) {}
  // Brings replicas together now: at the end of an epoch, before saving, at exit. Nothing to do where they are together.
  virtual void synchronize() {}
  // Whether replicas' optimizer states may differ: a checkpoint must then hold every rank's.
  virtual bool local_optimizer_state() const { return false; }
  // Whether parameters may differ even after synchronize(): then these, too.
  virtual bool local_parameters() const { return false; }
  // Whether parameters are bit for bit equal on all ranks just now, outside a step: then, and only then, they can be compared.
  virtual bool together() const { return !local_optimizer_state() && !local_parameters(); }

  // State for the checkpoint.
  virtual std::vector<std::pair<std::string, std::int64_t>> counters() const { return {}; }
  virtual void restore_counters(const std::vector<std::pair<std::string, std::int64_t>>&) {}

  // Averagings done so far, and one line for the user ("averaged 8/8 parameters, 600 times").
  virtual std::int64_t averagings() const { return 0; }
  virtual std::string coverage() const = 0;
};

struct GradientAveragingOptions {
  std::int64_t bucket_bytes = 25 << 20;  // the first bucket is 1 MiB at most, so that sending starts early
  bool overlap = true;                   // false: all buckets after backward; the same buckets, hence the same bits
};
// `communicator` is used from another thread while backward runs, and by nobody else. Both outlive the policy.
std::unique_ptr<AveragingPolicy> make_gradient_averaging(backends::Communicator& communicator, ParameterBuffer& parameters,
                                                         const GradientAveragingOptions& options);

// The same after backward, by the tree over the ranks (ordered_tree.h): with the parts of a step cut alike for every world, the
// same bits for any number of ranks and on every wire. `communicator` is used by nobody else.
std::unique_ptr<AveragingPolicy> make_canonical_averaging(backends::Communicator& communicator, ParameterBuffer& parameters);

struct ParameterAveragingOptions {
  std::int64_t every = 1;   // K: average after every K-th update
  std::int64_t warmup = 0;  // average after every update during the first so many
};
// Plain weighted mean of the parameters: weights are the samples each rank has seen since the last averaging.
// Source: McMahan et al., 2017 (federated averaging); Stich, 2019 (local SGD).
std::unique_ptr<AveragingPolicy> make_parameter_averaging(backends::Communicator& communicator, ParameterBuffer& parameters,
                                                          KernelContext& context, const ParameterAveragingOptions& options);

// No averaging at all (--sync none, and a world of one rank).
std::unique_ptr<AveragingPolicy> make_no_averaging(int world_size);

}  // namespace engine
