// The averaging policies and their options. docs/averaging.md says which policy suits which
// purpose.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "backends/communicator.h"
#include "backends/device_communicator.h"
#include "engine/averaging/codes/lossy_code.h"
#include "engine/averaging/policies/averaging_policy.h"
#include "engine/averaging/policies/outer_options.h"
#include "engine/averaging/policies/streaming_options.h"
#include "engine/averaging/policies/sync_schedule.h"
#include "engine/averaging/sums/bucket_cut.h"
#include "engine/core/parameter_buffer.h"
#include "engine/ops/common/kernel_context.h"

namespace engine {

class GradientSum;  // gradient_sum.h

// Averages gradients in every step. `sum` defines the method and owns the communicator; another
// thread uses this communicator during backward, and no other object may use it. `gradients`, in
// host memory, must outlive the policy.
std::unique_ptr<AveragingPolicy> make_gradient_averaging(std::unique_ptr<GradientSum> sum,
                                                         const FlatBuffer& gradients,
                                                         const BucketOptions& buckets = {});
// The same for gradients that the step sums itself, on a device (sums/device_sum.h) or in shards:
// the policy only gives the weights of the mean, the memory of the error, and the report.
struct StepSumOptions {
  std::size_t bytes = 0;  // this rank's payload in each step
  std::string note = {};  // suffix of the report that names the method (", on the device")
  // Not empty: the payload of a round, replaces the bytes.
  std::function<std::size_t(std::int64_t round)> bytes_in = {};
  bool has_error = false;     // the sum keeps what it did not send
  bool has_velocity = false;  // and velocities
  // Not empty: makes the factors that the sum keeps, equal on all ranks.
  std::function<FlatBuffer()> make_factors = {};
};
std::unique_ptr<AveragingPolicy> make_step_gradient_averaging(const FlatBuffer& gradients,
                                                              const StepSumOptions& options);

// A state of the optimizer that is averaged along with the parameters: with every averaging if
// `every` is 1, otherwise with every `every`-th averaging of the schedule alone (DES-LOC: Iacob et
// al., 2025).
struct AveragedState {
  FlatBuffer* buffer;
  std::int64_t every = 1;
};

struct ParameterAveragingOptions {
  std::string name = "params";
  SyncSchedule schedule;
  std::vector<AveragedState> states;
  bool all_states = false;        // every averaging includes all states of the optimizer
  std::string states_text;        // names of the states for coverage(), e.g. "momentum"
  FlatBuffer* running = nullptr;  // running statistics, averaged as well; may be empty
  std::optional<OuterOptions> outer;
  std::optional<LossyOptions> lossy;  // sends changes of the parameters as codes
};
// Replaces the parameters by their weighted mean after every K-th update; each rank's weight is the
// number of samples that it has seen since the last averaging. Source: McMahan et al., 2017
// (federated averaging); Stich, 2019 (local SGD). With `outer`, the difference between the result
// of the last outer step and the mean is then used as a gradient: DiLoCo (Douillard et al., 2023),
// SlowMo (Wang et al., 2019). Only the schedule triggers outer steps; synchronize() only averages,
// so that a checkpoint or an epoch's end does not change their number.
std::unique_ptr<AveragingPolicy> make_parameter_averaging(backends::Communicator& communicator,
                                                          ParameterBuffer& parameters,
                                                          KernelContext& context,
                                                          const ParameterAveragingOptions& options);

// Divides the parameters into fragments of whole layers. Each is averaged every K steps, on a clock
// of its own, and takes an outer step; the exchange may overlap the following steps, and the result
// is merged with the local parameters exactly `overlap` steps later. A thread of the policy uses
// the communicator. Source: Streaming DiLoCo (Douillard et al., 2025). synchronize() averages all
// parameters as other policies do.
std::unique_ptr<AveragingPolicy> make_streaming_averaging(backends::Communicator& communicator,
                                                          ParameterBuffer& parameters,
                                                          KernelContext& context,
                                                          const StreamingOptions& options);

// By rank: the communicators of this rank with each other one; null at its own place.
struct PairCommunicators {
  std::span<const std::unique_ptr<backends::Communicator>> in_host_memory = {};
  // Empty: devices exchange parameters through host memory.
  std::span<const std::unique_ptr<backends::DeviceCommunicator>> on_devices = {};
};

struct GossipOptions {
  std::string name = "gossip";
  SyncSchedule schedule;
  std::uint64_t seed = 0;  // determines the pairs
  std::optional<OuterOptions> outer;
};
// After every K-th update, ranks form random pairs (gossip_pairs.h), and each pair replaces its
// parameters by the mean of what both started from, plus the mean of their changes since, weighted
// by samples. With `outer`, each rank then takes an outer step toward that mean, with a momentum of
// its own: NoLoCo (Kolehmainen et al., 2025), with the rate of the outer step as the weight of the
// term that pulls the pair together. synchronize() averages over all ranks. The communicators must
// outlive the policy.
std::unique_ptr<AveragingPolicy> make_gossip_averaging(backends::Communicator& communicator,
                                                       PairCommunicators pairs,
                                                       ParameterBuffer& parameters,
                                                       KernelContext& context,
                                                       const GossipOptions& options);

// Combines averaging of gradients and of parameters in one run. Null parts are left out.
struct MixedAveragingOptions {
  std::string name;
  std::int64_t warmup =
      0;  // post-local SGD (Lin et al., 2018): `all` averages gradients in this many first steps
  std::unique_ptr<AveragingPolicy> all = {};
  // After the warm-up, averages gradients within this rank's island in every step.
  std::unique_ptr<AveragingPolicy> island = {};
  std::string island_text = {};                      // e.g. "2 hosts", for coverage()
  std::unique_ptr<AveragingPolicy> parameters = {};  // averages parameters over all ranks
};
std::unique_ptr<AveragingPolicy> make_mixed_averaging(MixedAveragingOptions options);

}  // namespace engine
