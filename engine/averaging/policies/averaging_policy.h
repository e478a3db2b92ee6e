// What keeps replicas in step: what gradients go through in a step, what happens to parameters
// after the update, and at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/averaging/policies/policy_checkpoint.h"
#include "engine/averaging/sums/gradient_exchange.h"
#include "engine/core/state_home.h"

namespace engine {

// Samples of one step: on this rank, over all ranks, and over the ranks that count as one replica
// with this one (those of its host, with --sync-island host). Known to every rank from the sampler,
// without communication.
struct StepCounts {
  std::int64_t local = 0, global = 0, island = 0;
};

// What an averaging has done so far.
struct AveragingReport {
  std::int64_t averagings = 0;
  // Payload that this rank has handed to the averaging's collectives. Headers, what a backend makes
  // of a collective on the wire, and the one number of a measured spread are not counted, so that
  // policies can be compared whatever carries them and however much is reported.
  std::int64_t bytes_sent = 0;
  // How far the replicas were apart before the first averaging since the last report: max over
  // ranks of |own - mean| / |mean|, Euclidean norms over all parameters.
  std::optional<double> spread = {};
  std::string coverage;  // one line for the user ("averaged 8/8 parameters 600 times in ...")
};

// Called by the trainer in this order in every step: loss_scale, begin_step, then end_step once the
// optimizer has run. All ranks make the same calls. What of the state a policy looks at or changes,
// it does under a HostView of `home`. Between end_step and the next backward pass a policy may use
// the gradients' memory as scratch.
class AveragingPolicy : public PolicyCheckpoint {
 public:
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
  // Whether parameters are bit for bit equal on all ranks just now, outside a step: then, and only
  // then, they can be compared.
  virtual bool together() const;
  // Samples that this rank has trained on since replicas were last together; 0: they are.
  virtual std::int64_t samples_since_sync() const { return 0; }

  // The spread is measured, at one averaging, from the first report on.
  virtual AveragingReport take_report() = 0;
};

// No averaging at all (--sync none, and a world of one rank).
std::unique_ptr<AveragingPolicy> make_no_averaging(int world_size);

}  // namespace engine
