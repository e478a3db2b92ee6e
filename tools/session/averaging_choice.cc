// Which policies an option stands for, and how they are put together.
#include "tools/session/averaging_choice.h"

#include <algorithm>

#include "engine/averaging/policies/averaging_policies.h"
#include "engine/averaging/sums/gradient_sum.h"
#include "io/base/text_format.h"

namespace tools {
namespace {

bool averages_parameters(const tools::RunConfig& config) {
  return config.sync != "grad" && config.sync != "none";
}

std::unique_ptr<engine::AveragingPolicy> make_gradients(const tools::RunConfig& config,
                                                        backends::Communicator& wire,
                                                        const AveragingParts& parts) {
  engine::ParameterBuffer& parameters = parts.model.parameters;
  auto sum = config.canonical            ? engine::make_tree_sum(wire, parameters.gradients)
             : config.compress == "bf16" ? engine::make_bf16_sum(wire, parameters.gradients)
             : config.compress == "topk"
                 ? engine::make_top_k_sum(wire, parameters.gradients, config.topk_ratio)
             : config.compress == "powersgd"
                 ? engine::make_power_sgd_sum(wire, parameters.gradients, parts.context,
                                              config.powersgd_rank)
                 : engine::make_plain_sum(wire, parameters.gradients);
  return engine::make_gradient_averaging(std::move(sum), parameters.gradients,
                                         bucket_options(config));
}

// Steps at the start that average gradients: all warm-ups but that of --sync params, which averages
// parameters.
std::int64_t gradient_steps(const tools::RunConfig& config) {
  if (config.sync == "params" || !averages_parameters(config)) return 0;
  return config.sync_schedule.empty() ? config.sync_warmup : config.sync_schedule.front().from;
}

// In steps after `origin`.
engine::SyncSchedule schedule_of(const tools::RunConfig& config, std::int64_t origin) {
  if (!config.sync_schedule.empty()) {
    std::vector<engine::SyncPhase> phases;
    for (const auto& [from, every] : config.sync_schedule) phases.push_back({from - origin, every});
    return engine::SyncSchedule(phases);
  }
  if (config.sync == "params")
    return engine::SyncSchedule::constant(config.sync_every, config.sync_warmup);
  return engine::SyncSchedule({{gradient_steps(config) - origin, config.sync_every}});
}

std::optional<engine::OuterOptions> outer_of(const tools::RunConfig& config) {
  if (config.sync == "diloco")
    return engine::OuterOptions{config.outer_lr, config.outer_momentum, config.outer_nesterov,
                                /*over_inner_rate=*/false};
  if (config.sync == "slowmo")
    return engine::OuterOptions{config.slowmo_alpha, config.slowmo_beta, /*nesterov=*/false,
                                /*over_inner_rate=*/true};
  return std::nullopt;
}

engine::ParameterAveragingOptions parameter_options(const tools::RunConfig& config,
                                                    engine::ModelState& model,
                                                    engine::Optimizer& optimizer) {
  engine::ParameterAveragingOptions options;
  options.name = config.sync;
  options.schedule = schedule_of(config, gradient_steps(config));
  options.outer = outer_of(config);
  const std::vector<engine::Optimizer::State> states = optimizer.state();
  for (const engine::Optimizer::State& s : states) {
    const bool first_moment = s.name == "momentum" || s.name == "exp_avg";
    if (config.average_state == "none" || (config.average_state == "momentum" && !first_moment))
      continue;
    options.states.push_back(s.buffer);
    options.states_text += (options.states_text.empty() ? "" : " and ") + std::string(s.name);
  }
  options.all_states = options.states.size() == states.size();
  if (config.average_buffers && model.running.size() > 0) options.running = &model.running;
  return options;
}

int host_count(const backends::Group& group) {
  std::vector<std::string> hosts;
  for (const backends::PeerInfo& peer : group.peers())
    if (std::ranges::find(hosts, peer.host_id) == hosts.end()) hosts.push_back(peer.host_id);
  return static_cast<int>(hosts.size());
}

}  // namespace

engine::BucketOptions bucket_options(const tools::RunConfig& config) {
  return {.bytes = static_cast<std::int64_t>(config.bucket_cap_mb * (1 << 20)),
          .overlap = !config.delay_allreduce};
}

std::vector<int> island_ranks(const tools::RunConfig& config, const backends::Group& group) {
  if (config.sync_island != "host" || !averages_parameters(config)) return {group.rank()};
  const std::vector<backends::PeerInfo>& peers = group.peers();
  const auto self = std::ranges::find(peers, group.rank(), &backends::PeerInfo::rank);
  std::vector<int> ranks;
  for (const backends::PeerInfo& peer : peers)
    if (self != peers.end() && peer.host_id == self->host_id) ranks.push_back(peer.rank);
  std::ranges::sort(ranks);
  return ranks;
}

std::unique_ptr<engine::AveragingPolicy> make_averaging(const tools::RunConfig& config,
                                                        const backends::Group& group,
                                                        const AveragingParts& parts) {
  if (group.world_size() == 1 || config.sync == "none")
    return engine::make_no_averaging(group.world_size());
  if (config.sync == "grad") return make_gradients(config, parts.wire, parts);
  auto parameters =
      engine::make_parameter_averaging(parts.wire, parts.model.parameters, parts.context,
                                       parameter_options(config, parts.model, parts.optimizer));
  const std::int64_t warmup = gradient_steps(config);
  if (warmup == 0 && parts.island == nullptr) return parameters;
  engine::MixedAveragingOptions mixed;
  mixed.name = config.sync;
  mixed.warmup = warmup;
  if (warmup > 0) mixed.all = make_gradients(config, parts.wire, parts);
  if (parts.island != nullptr) {
    mixed.island = make_gradients(config, *parts.island, parts);
    mixed.island_text = std::to_string(host_count(group)) + " hosts";
  }
  mixed.parameters = std::move(parameters);
  return engine::make_mixed_averaging(std::move(mixed));
}

bool sums_gradients_after(std::int64_t steps, const tools::RunConfig& config,
                          const backends::Group& group) {
  if (group.world_size() == 1 || config.sync == "none") return false;
  return config.sync == "grad" || config.sync_island == "host" || steps < gradient_steps(config);
}

std::string averaging_text(const tools::RunConfig& config, std::string_view policy) {
  std::string text(policy);
  if (policy == "none") return text;
  if (policy == "grad") {
    if (config.canonical) return text + " canonical";
    text += config.compress == "topk" || config.compress == "powersgd" || config.delay_allreduce
                ? " delayed"
                : " overlapped";
    if (config.compress == "bf16") text += ", bf16";
    if (config.compress == "topk") text += ", top-k " + io::shortest_text(config.topk_ratio);
    if (config.compress == "powersgd")
      text += ", PowerSGD rank " + std::to_string(config.powersgd_rank);
    return text;
  }
  text += config.sync_schedule.empty() ? " every " + std::to_string(config.sync_every)
                                       : " by " + config.origin.find("sync-schedule")->second.value;
  if (config.sync == "diloco")
    text += ", outer lr " + io::shortest_text(config.outer_lr) + " momentum " +
            io::shortest_text(config.outer_momentum) + (config.outer_nesterov ? " nesterov" : "");
  if (config.sync == "slowmo")
    text += ", alpha " + io::shortest_text(config.slowmo_alpha) + " beta " +
            io::shortest_text(config.slowmo_beta);
  if (gradient_steps(config) > 0)
    text += " after " + std::to_string(gradient_steps(config)) + " of grad";
  if (config.sync_island == "host") text += ", islands are hosts";
  return text;
}

std::vector<std::string> averaging_plan_lines(const tools::RunConfig& config,
                                              const backends::Group& group,
                                              engine::ModelState& model,
                                              engine::Optimizer& optimizer, std::int64_t first_step,
                                              std::int64_t steps_per_epoch,
                                              std::int64_t total_steps) {
  if (group.world_size() == 1 || !averages_parameters(config)) return {};
  const engine::ParameterAveragingOptions options = parameter_options(config, model, optimizer);
  engine::AveragingPlan plan;
  plan.first_step = first_step;
  plan.total_steps = total_steps;
  plan.steps_per_epoch = steps_per_epoch;
  plan.warmup = gradient_steps(config);
  plan.schedule = schedule_of(config, 0);
  plan.bytes_each = static_cast<std::int64_t>(model.parameters.values.bytes());
  for (const engine::FlatBuffer* state : options.states)
    plan.bytes_each += static_cast<std::int64_t>(state->bytes());
  if (options.running != nullptr)
    plan.bytes_each += static_cast<std::int64_t>(options.running->bytes());
  plan.outer = options.outer.has_value();
  plan.ranks = group.world_size();
  plan.islands = config.sync_island == "host" ? host_count(group) : 0;
  return engine::describe(plan);
}

}  // namespace tools
