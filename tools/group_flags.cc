// Picks the group options out of the option table.
#include "tools/group_flags.h"

#include <algorithm>

#include "backends/rendezvous/identity.h"

namespace tools {
namespace {

std::vector<std::string> group_names(const std::vector<std::string>& more) {
  std::vector<std::string> names{"flight-dir"};
  for (const io::OptionSpec& option : io::train_options())
    if (option.group == std::string_view("group")) names.emplace_back(option.name);
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

}  // namespace

void add_group_flags(CLI::App& app, io::ConfigValues& values, const std::vector<std::string>& more) {
  add_table_options(app, values, group_names(more));
}

io::RunConfig resolve_group_flags(io::ConfigValues values, const std::vector<std::string>& more,
                                  const std::map<std::string, std::string>& defaults) {
  const std::vector<std::string> names = group_names(more);
  io::ConfigValues environment;
  io::apply_environment(environment);
  for (const auto& [name, value] : environment)
    if (std::find(names.begin(), names.end(), name) != names.end()) values.emplace(name, value);
  for (const auto& [name, value] : defaults) values.emplace(name, io::ConfigValue{value, "default"});
  // A run needs a model and data; no group does.
  values.emplace("model", io::ConfigValue{"mlp", "default"});
  values.emplace("dataset", io::ConfigValue{"synthetic", "default"});
  io::apply_defaults(values);
  return io::resolve_run_config(values);
}

bool in_launched_group(const io::RunConfig& config) {
  if (config.spawn > 0) return false;
  return backends::resolve_identity({.init_method = config.init_method,
                                     .rank = config.rank,
                                     .world_size = config.world_size,
                                     .local_rank = config.local_rank},
                                    backends::process_environment())
             .world_size > 1;
}

}  // namespace tools
