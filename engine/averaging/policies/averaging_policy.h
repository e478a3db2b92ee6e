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
#include "engine/averaging/sums/gradient_exchange.h"
#include "engine/core/parameter_buffer.h"
#include "engine/core/state_home.h"
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

// Called by the trainer in this order in every step: loss_scale, begin_step, then end_step once the
// optimizer has run. All ranks make the same calls. What of the state a policy looks at or changes,
// it does under a HostView of `home`. Between end_step and the next backward pass a policy may use
// the gradients' memory as scratch.
class AveragingPolicy {
 public:
  virtual ~AveragingPolicy() = default;
  virtual std::string_view name() const = 0;  // "grad"

  // The factor on the sum of this rank's losses that makes the result a mean: over the global batch
  // where gradients are averaged, over the local one otherwise. A rank without samples gets 0.
  virtual double loss_scale(const StepCounts& counts) const = 0;
  // Before forward. What the gradients of this step go through in host memory, valid until
  // end_step(); null: they stay this rank's, or are summed where they are computed.
  virtual GradientExchange* begin_step(StateHome& /*home*/) { return nullptr; }
  // `lr`: the rate of the update just made.
  virtual void end_step(const StepCounts& /*counts*/, double /*lr*/, StateHome& /*home*/) {}
  // Brings replicas together now: at the end of an epoch, before saving, at exit. Nothing to do
  // where they are together.
  virtual void synchronize(StateHome& /*home*/) {}
  // Whether replicas' optimizer states may differ: a checkpoint must then hold every rank's.
  virtual bool local_optimizer_state() const { return false; }
  // Whether parameters may differ even after synchronize(): then these, too.
  virtual bool local_parameters() const { return false; }
  // Whether parameters are bit for bit equal on all ranks just now, outside a step: then, and only
  // then, they can be compared.
  virtual bool together() const { return !local_optimizer_state() && !local_parameters(); }

  // State for the checkpoint. "updates" is the number of end_step calls, which is the global
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
