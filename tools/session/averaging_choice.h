// From options to the averaging policy of a run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/group.h"
#include "engine/averaging/policies/averaging_plan.h"
#include "engine/averaging/policies/averaging_policy.h"
#include "engine/averaging/sums/bucket_cut.h"
#include "engine/graph/model_state.h"
#include "engine/optim/optimizer.h"
#include "tools/options/run_config.h"

namespace tools {

engine::BucketOptions bucket_options(const tools::RunConfig& config);

// What a policy works with; all of it outlives the policy.
struct AveragingParts {
  backends::Communicator& wire;    // of all ranks, for the policy alone
  backends::Communicator* island;  // of this rank's island; null where --sync-island is rank
  engine::ModelState& model;
  engine::Optimizer& optimizer;
  engine::KernelContext& context;
};
std::unique_ptr<engine::AveragingPolicy> make_averaging(const tools::RunConfig& config,
                                                        const backends::Group& group,
                                                        const AveragingParts& parts);

// The ranks that count as one replica with this one, itself among them, ascending.
std::vector<int> island_ranks(const tools::RunConfig& config, const backends::Group& group);
// Whether the step after `steps` steps sums gradients over ranks.
bool sums_gradients_after(std::int64_t steps, const tools::RunConfig& config,
                          const backends::Group& group);
// "params every 8", "grad overlapped, top-k 0.01": for the start line.
std::string averaging_text(const tools::RunConfig& config, std::string_view policy);
// What to tell before the start; empty where gradients are averaged every step, or nothing is.
std::vector<std::string> averaging_plan_lines(const tools::RunConfig& config,
                                              const backends::Group& group,
                                              engine::ModelState& model,
                                              engine::Optimizer& optimizer, std::int64_t first_step,
                                              std::int64_t steps_per_epoch,
                                              std::int64_t total_steps);

}  // namespace tools
