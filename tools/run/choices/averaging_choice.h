// From options to the averaging policy of a run.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/group.h"
#include "engine/averaging/policies/averaging_plan.h"
#include "engine/averaging/policies/averaging_policy.h"
#include "engine/graph/model_state.h"
#include "engine/optim/optimizer.h"
#include "tools/options/table/session_options.h"

namespace tools {

// What a policy works with; all of it outlives the policy.
struct AveragingParts {
  backends::Communicator& wire;    // of all ranks, for the policy alone
  backends::Communicator* island;  // of this rank's island; null where --sync-island is rank
  engine::ModelState& model;
  engine::Optimizer& optimizer;
  engine::KernelContext& context;
  // Where each rank updates a share; null: all update all.
  const engine::OptimizerShards* shares = nullptr;
};
std::unique_ptr<engine::AveragingPolicy> make_averaging(const AveragingOptions& options,
                                                        const backends::Group& group,
                                                        const AveragingParts& parts);

// The ranks that count as one replica with this one, itself among them, ascending.
std::vector<int> island_ranks(const AveragingOptions& options, const backends::Group& group);
// Whether the step after `steps` steps sums gradients over ranks.
bool sums_gradients_after(std::int64_t steps, const AveragingOptions& options, int world_size);
// "params every 8", "grad overlapped, top-k 0.01": for the start line.
std::string averaging_text(const AveragingOptions& options, std::string_view policy);
// How often parameters will be averaged; none where gradients are averaged every step, or nothing
// is.
struct PlannedSteps {
  std::int64_t first = 0, of_epoch = 1, total = 0;  // first: done at the start
  std::int64_t first_of_epochs = 0;                 // EpochSteps::step_of_epoch(0)
};
std::optional<engine::AveragingPlan> averaging_plan(const AveragingOptions& options,
                                                    const backends::Group& group,
                                                    engine::ModelState& model,
                                                    engine::Optimizer& optimizer,
                                                    const PlannedSteps& steps);

}  // namespace tools
