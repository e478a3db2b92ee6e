// Makes the averaging policy of a run from options.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/group.h"
#include "engine/averaging/policies/averaging_plan.h"
#include "engine/averaging/policies/averaging_policies.h"
#include "engine/averaging/policies/averaging_policy.h"
#include "engine/graph/model_state.h"
#include "engine/optim/optimizer.h"
#include "tools/options/table/session_options.h"

namespace tools {

// The objects that a policy uses; all of them outlive the policy.
struct AveragingParts {
  backends::Communicator& communicator;  // connects all ranks, only for the policy
  backends::Communicator* island;  // connects this rank's island; null if --sync-island is rank
  engine::ModelState& model;
  engine::Optimizer& optimizer;
  engine::KernelContext& context;
  std::uint64_t seed;                    // of stochastic rounding
  engine::PairCommunicators pairs = {};  // with --sync gossip
  // If each rank needs the sums of its slices only; null: every rank needs all sums.
  const engine::OptimizerShards* shares = nullptr;
  bool on_device = false;  // the state is on a CUDA device
};
std::unique_ptr<engine::AveragingPolicy> make_averaging(const AveragingOptions& options,
                                                        const backends::Group& group,
                                                        const AveragingParts& parts);

// Returns true if a group of `world_size` ranks changes parameters by its averagings. One rank has
// no rank to average with, but takes the outer steps of its policy, so that the method is the same
// for any number of ranks; it has no use for a policy without them.
bool averages(const AveragingOptions& options, int world_size);
// Returns the options that a group of `world_size` ranks follows. One rank needs no codes and waits
// for no late rank.
AveragingOptions options_of_group(AveragingOptions options, int world_size);

// Returns the ranks that form one replica with this one, including itself, ascending.
std::vector<int> island_ranks(const AveragingOptions& options, const backends::Group& group);
// Returns the first rank of each rank's island, by rank; empty without islands.
std::vector<int> first_island_ranks(const AveragingOptions& options, const backends::Group& group);
// Returns the codes of what is averaged; none with the methods for gradients alone. `seed`: of
// stochastic rounding.
std::optional<engine::LossyOptions> codes_of(const AveragingOptions& options, std::uint64_t seed);
// Returns true if the ranks' devices can sum the parameters in averagings of all ranks.
bool sums_parameters_on_devices(const AveragingOptions& options);
// Returns true if a CUDA device computes codes of the gradients and sums them in each step.
bool encodes_gradients_on_device(const AveragingOptions& options);
// Returns the bytes that the policy of each rank keeps in host memory for each trained parameter of
// `dtype`: starts of changes, unsent parts of codes, the state of outer steps. Work memory of
// limited size is not included.
std::size_t averaging_bytes(const AveragingOptions& options, int world_size, engine::DType dtype);
// Returns the same of a device that has the state: the part with which the policy calculates there.
std::size_t averaging_bytes_on_device(const AveragingOptions& options, int world_size,
                                      engine::DType dtype);
// Returns true if the step after `steps` steps sums gradients over ranks.
bool sums_gradients_after(std::int64_t steps, const AveragingOptions& options, int world_size);
// Returns e.g. "params every 8", "grad overlapped, top-k 0.01": for the start line.
std::string averaging_text(const AveragingOptions& options, std::string_view policy);
// Returns how often parameters will be averaged; none if gradients are averaged every step, or
// there is no averaging.
std::optional<engine::AveragingPlan> averaging_plan(const AveragingOptions& options,
                                                    const backends::Group& group,
                                                    engine::ModelState& model,
                                                    engine::Optimizer& optimizer,
                                                    const engine::PlannedSteps& steps);

}  // namespace tools
