// Defines the interface of averaging policies: what happens to gradients in a step, and to
// parameters after the update and at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/averaging/math/state_home.h"
#include "engine/averaging/policies/policy_checkpoint.h"
#include "engine/averaging/sums/gradient_exchange.h"

namespace engine {

// The samples of one step: on this rank, over all ranks, and over the ranks that form one replica
// with this one (those of its host with --sync-island host). Every rank computes them from the
// sampler without communication.
struct StepCounts {
  std::int64_t local = 0, global = 0, island = 0;
  bool all_meet = false;  // all ranks wait for each other after the step, e.g. for an evaluation
};

// The sums of the weights of the losses of one step, over the same samples as StepCounts: the
// counts, unless losses have weights.
struct StepWeights {
  double local = 0, global = 0, island = 0;
};
// Returns the factor on a sum of losses that makes it a mean; 0 if there are none.
inline double factor_of_mean(double weight) { return weight > 0 ? 1 / weight : 0; }

// The averagings since the start.
struct AveragingReport {
  std::int64_t averagings = 0;
  // The payload that this rank has passed to the collectives of the averaging. It excludes headers,
  // the protocol overhead of the backend, and the single number of a measured spread, so that
  // policies can be compared for any backend and any frequency of reports.
  std::int64_t bytes_sent = 0;
  // The distance of the replicas from each other before the first averaging since the last report:
  // max over ranks of |own - mean| / |mean|, Euclidean norms over all parameters.
  std::optional<double> spread = {};
  std::string coverage;  // one line for the user ("averaged 8/8 parameters 600 times in ...")
};

// The states of one rank that suffice to continue the run of all, without the other ranks.
enum class LoneState {
  kLastStep,     // after any step: replicas are equal
  kLastMean,     // after an averaging of all ranks: later steps are those of this rank alone
  kOwn,          // its replica after any step: the schedule's averagings leave replicas different
  kIndependent,  // the same, and each rank has a model of its own: nothing is averaged
};

// The ranks over which a step averages gradients. They begin it with equal optimizer states, so
// that their updates are equal.
enum class GradientRanks { kNone, kIsland, kAll };

// States what a rank's next step needs of the others, and what it has without them.
struct Coupling {
  bool steps_alone = false;  // nothing: all exchanges are in end_step()
  // The averagings of the schedule leave replicas different and do not wait for all ranks: only
  // synchronize() makes replicas equal.
  bool stays_apart = false;
  LoneState lone = LoneState::kLastStep;
  GradientRanks gradients = GradientRanks::kNone;
};

// The trainer calls in every step, in this order: loss_scale, begin_step, and end_step after the
// optimizer. All ranks make the same calls. A policy reads or changes state only under a HostView
// or a StateUse of `home`. Between end_step and the next backward pass a policy may use the memory
// of the gradients as scratch.
class AveragingPolicy : public PolicyCheckpoint {
 public:
  virtual std::string_view name() const = 0;  // "grad"

  // The factor on the sum of this rank's losses that makes it a mean: over the global batch if
  // gradients are averaged, otherwise over the local batch. It is 0 for a rank without samples.
  virtual double loss_scale(const StepWeights& weights) const = 0;
  // Called before forward. Returns the exchange that the gradients of this step pass through in
  // host memory, valid until end_step(); null if they stay local or are summed where they are
  // computed.
  virtual GradientExchange* begin_step(StateHome& /*home*/) { return nullptr; }
  // Returns the number of exchanges of gradients before this step, also over resumptions: the
  // random numbers of their codes depend on it.
  virtual std::int64_t round() const { return 0; }
  // Returns the memory that this exchange changes during a step, up to
  // GradientExchange::wait_idle().
  virtual std::vector<PolicyState> exchange_state() { return {}; }
  // `lr` is the learning rate of the update just made. Returns how many of the next steps this rank
  // leaves out, because the others have done them.
  virtual std::int64_t end_step(const StepCounts& /*counts*/, double /*lr*/, StateHome& /*home*/) {
    return 0;
  }

  // Returns further memory with which the policy calculates where the state is, for
  // StateHome::add().
  virtual HomeMemory memory_at_home() { return {}; }

  virtual Coupling coupling() const { return {}; }

  // Synchronizes the replicas now: at the end of an epoch, before saving, at exit. Does nothing if
  // they are already equal.
  virtual void synchronize(StateHome& /*home*/) {}
  // Returns true if the parameters are bit for bit equal on all ranks now, outside a step. Only
  // then can they be compared.
  virtual bool is_in_sync() const;
  // The samples that this rank has trained on since the last synchronization; 0 if is_in_sync(). If
  // replicas differ, at least 1 also on a rank without samples, which has others' in its
  // parameters. Both state what is certain: a failed averaging leaves replicas different.
  virtual std::int64_t samples_since_sync() const { return 0; }

  // After the first report, the spread is measured at one averaging per report.
  virtual AveragingReport take_report() = 0;
};

// A policy without averaging (--sync none, or a world of one rank).
std::unique_ptr<AveragingPolicy> make_no_averaging(int world_size);

}  // namespace engine
