// The averaging policies and their options. Which of them suits what: docs/averaging.md.
#pragma once

#include "backends/communicator.h"
#include "engine/averaging/policies/averaging_policy.h"
#include "engine/averaging/policies/sync_schedule.h"
#include "engine/averaging/sums/bucket_cut.h"
#include "engine/core/parameter_buffer.h"
#include "engine/ops/common/kernel_context.h"

namespace engine {

class GradientSum;  // gradient_sum.h

// Gradients every step. `sum` says how they are summed and has the communicator, which is used from
// another thread while backward runs, and by nobody else. `gradients`, in host memory, outlive the
// policy.
std::unique_ptr<AveragingPolicy> make_gradient_averaging(std::unique_ptr<GradientSum> sum,
                                                         const FlatBuffer& gradients,
                                                         const BucketOptions& buckets = {});
// The same where the step sums them itself, on a device (sums/device_sum.h) or in shards: the
// weights of the mean, and what a report says. `bytes`: of this rank in each step. `note`: how they
// are summed (", on the device").
std::unique_ptr<AveragingPolicy> make_step_gradient_averaging(const FlatBuffer& gradients,
                                                              std::size_t bytes, std::string note);

// What an averaging of parameters is followed by.
struct OuterOptions {
  double lr = 1, momentum = 0;
  bool nesterov = false;
  bool over_inner_rate = false;  // the step is divided by the inner learning rate before it enters
                                 // the momentum, and multiplied by it when it is applied (SlowMo)
};

struct ParameterAveragingOptions {
  std::string name = "params";
  SyncSchedule schedule;
  std::vector<FlatBuffer*> states;  // of the optimizer, to be averaged along with the parameters
  bool all_states = false;          // these are all that the optimizer has
  std::string states_text;          // "momentum": for coverage()
  FlatBuffer* running = nullptr;    // running statistics, likewise; may be empty
  std::optional<OuterOptions> outer;
};
// Weighted mean of the parameters after every K-th update: weights are the samples each rank has
// seen since the last averaging. Source: McMahan et al., 2017 (federated averaging); Stich, 2019
// (local SGD). With `outer`, the way from the last outer step's result to the mean is then taken as
// a gradient: DiLoCo (Douillard et al., 2023), SlowMo (Wang et al., 2019). Outer steps are taken
// when the schedule says so; synchronize() only averages, so that a snapshot or an epoch's end does
// not change their number.
std::unique_ptr<AveragingPolicy> make_parameter_averaging(backends::Communicator& communicator,
                                                          ParameterBuffer& parameters,
                                                          KernelContext& context,
                                                          const ParameterAveragingOptions& options);

// Gradients and parameters in one run. Null parts are left out.
struct MixedAveragingOptions {
  std::string name;
  std::int64_t warmup =
      0;  // post-local SGD (Lin et al., 2018): `all` averages gradients in the first so many steps
  std::unique_ptr<AveragingPolicy> all;
  std::unique_ptr<AveragingPolicy>
      island;  // after them it averages gradients within this rank's island, every step
  std::string island_text;                      // "2 hosts": for coverage()
  std::unique_ptr<AveragingPolicy> parameters;  // and this one averages parameters over all ranks
};
std::unique_ptr<AveragingPolicy> make_mixed_averaging(MixedAveragingOptions options);

}  // namespace engine
