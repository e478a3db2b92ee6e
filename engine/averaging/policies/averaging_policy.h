// What keeps replicas in step: what happens to gradients during backward, to parameters after the
// update, and at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/communicator.h"
#include "engine/core/parameter_buffer.h"
#include "engine/ops/common/kernel_context.h"

namespace engine {

// Samples of one step: on this rank, over all ranks, and over the ranks that count as one replica
// with this one (those of its host, with --sync-island host). Known to every rank from the sampler,
// without communication.
struct StepCounts {
  std::int64_t local = 0, global = 0, island = 0;
};

// Memory of a policy that a checkpoint must hold.
struct PolicyState {
  std::string name;    // "outer_momentum"
  FlatBuffer* buffer;  // owned by the policy
  bool local;          // its content differs between ranks
};
using PolicyCounters = std::vector<std::pair<std::string, std::int64_t>>;

// Called by the trainer in this order in every step: loss_scale, gradients_ready (several times),
// finish_gradients, then after_update once the optimizer has run. All ranks make the same calls.
// Between after_update and the next backward pass a policy may use the gradients' memory as
// scratch.
class AveragingPolicy {
 public:
  virtual ~AveragingPolicy() = default;
  virtual std::string_view name() const = 0;  // "grad"

  // The factor on the sum of this rank's losses that makes the result a mean: over the global batch
  // where gradients are averaged, over the local one otherwise. A rank without samples gets 0.
  virtual double loss_scale(const StepCounts& counts) const = 0;
  // The first `elements` of the gradient buffer are final on this rank.
  virtual void gradients_ready(std::int64_t /*elements*/) {}
  // Blocks until the gradients are what the optimizer shall see.
  virtual void finish_gradients() {}
  // `lr`: the rate of the update just made.
  virtual void after_update(const StepCounts& /*counts*/, double /*lr*/) {}
  // Whether it changes the gradients of the next step, in host memory, between gradients_ready()
  // and finish_gradients().
  virtual bool changes_gradients() const { return false; }
  // Whether the next after_update() reads or writes anything of the state that an update changes.
  // Where it does not, a state on a device need not be brought to host memory.
  virtual bool update_touches_state() const { return true; }
  // Whether finish_gradients() of the step to come reads the parameters, as they are before that
  // step.
  virtual bool reads_parameters() const { return false; }
  // Brings replicas together now: at the end of an epoch, before saving, at exit. Nothing to do
  // where they are together.
  virtual void synchronize() {}
  // Whether replicas' optimizer states may differ: a checkpoint must then hold every rank's.
  virtual bool local_optimizer_state() const { return false; }
  // Whether parameters may differ even after synchronize(): then these, too.
  virtual bool local_parameters() const { return false; }
  // Whether parameters are bit for bit equal on all ranks just now, outside a step: then, and only
  // then, they can be compared.
  virtual bool together() const { return !local_optimizer_state() && !local_parameters(); }

  // State for the checkpoint. "updates" is the number of after_update calls, which is the global
  // step; a snapshot of another policy gives it, too.
  virtual PolicyCounters counters() const { return {}; }
  virtual void restore_counters(const PolicyCounters&) {}
  virtual std::vector<PolicyState> state() { return {}; }

  // Averagings done so far, and one line for the user ("averaged 8/8 parameters, 600 times").
  virtual std::int64_t averagings() const { return 0; }
  virtual std::string coverage() const = 0;
  // Payload bytes that this rank has handed to the averaging's collectives so far. Headers, what a
  // backend makes of a collective on the wire, and the one number of a measured spread are not
  // counted, so that policies can be compared whatever carries them and however much is reported.
  virtual std::int64_t bytes_sent() const { return 0; }

  // How far the replicas were apart before an averaging: max over ranks of |own - mean| / |mean|,
  // Euclidean norms over all parameters. Measured once, at the next averaging after
  // measure_spread(); take_spread() gives each result once.
  virtual void measure_spread() {}
  virtual std::optional<double> take_spread() { return std::nullopt; }
};

// No averaging at all (--sync none, and a world of one rank).
std::unique_ptr<AveragingPolicy> make_no_averaging(int world_size);

// The counter of that name, or `fallback`.
std::int64_t find_counter(const PolicyCounters& counters, std::string_view name,
                          std::int64_t fallback);

}  // namespace engine
