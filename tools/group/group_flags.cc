// Picks the group options out of the option table.
#include "tools/group/group_flags.h"

#include <algorithm>

#include "backends/identity/identity.h"

namespace tools {
namespace {

std::vector<std::string> group_names(const std::vector<std::string>& more) {
  std::vector<std::string> names{"flight-dir"};
  for (const tools::OptionSpec& option : tools::train_options())
    if (option.group == std::string_view("group")) names.emplace_back(option.name);
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

backends::Identity identity_of(const tools::RunConfig& config) {
  return backends::resolve_identity({.init_method = config.init_method,
                                     .rank = config.rank,
                                     .world_size = config.world_size,
                                     .local_rank = config.local_rank,
                                     .port_rule = config.port_rule,
                                     .job_id = config.job_id},
                                    backends::process_environment());
}

}  // namespace

void add_group_flags(CLI::App& app, tools::ConfigValues& values,
                     const std::vector<std::string>& more) {
  add_table_options(app, values, group_names(more));
}

tools::RunConfig resolve_group_flags(tools::ConfigValues values,
                                     const std::vector<std::string>& more,
                                     const std::map<std::string, std::string>& defaults) {
  const std::vector<std::string> names = group_names(more);
  tools::ConfigValues environment;
  tools::apply_environment(environment);
  for (const auto& [name, value] : environment)
    if (std::find(names.begin(), names.end(), name) != names.end()) values.emplace(name, value);
  for (const auto& [name, value] : defaults)
    values.emplace(name, tools::ConfigValue{value, "default"});
  // A run needs a model and data; no group does.
  values.emplace("model", tools::ConfigValue{"mlp", "default"});
  values.emplace("dataset", tools::ConfigValue{"synthetic", "default"});
  tools::apply_defaults(values);
  return tools::resolve_run_config(values);
}

bool in_launched_group(const tools::RunConfig& config) {
  return config.spawn == 0 && identity_of(config).world_size > 1;
}

bool has_rank_zero(const tools::RunConfig& config) {
  return config.spawn > 0 || identity_of(config).rank == 0;
}

}  // namespace tools
