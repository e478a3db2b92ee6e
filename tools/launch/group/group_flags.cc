// Selects the group options from the option table.
#include "tools/launch/group/group_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "io/base/files/io_error.h"
#include "tools/launch/group/joining_options.h"
#include "tools/launch/machine/thread_choice.h"
#include "tools/launch/machine/visible_gpus.h"
#include "tools/options/input/config_sources.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

std::vector<std::string> group_names(const std::vector<std::string>& more) {
  std::vector<std::string> names{"flight-dir"};
  for (const OptionSpec& option : train_options())
    if (option.group == std::string_view("group")) names.emplace_back(option.name);
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

}  // namespace

void add_group_flags(CLI::App& app, ConfigValues& values, const std::vector<std::string>& more) {
  add_table_options(app, values, group_names(more));
}

RunConfig resolve_group_flags(ConfigValues values, const std::vector<std::string>& more,
                              const std::map<std::string, std::string>& defaults) {
  const std::vector<std::string> names = group_names(more);
  ConfigValues environment;
  apply_environment(environment);
  for (const auto& [name, value] : environment)
    if (std::find(names.begin(), names.end(), name) != names.end()) values.emplace(name, value);
  for (const auto& [name, value] : defaults)
    values.emplace(name, ConfigValue{value, kDefaultSource});
  // A run needs a model and data; no group does.
  values.emplace("model", ConfigValue{"mlp", kDefaultSource});
  values.emplace("dataset", ConfigValue{"synthetic", kDefaultSource});
  apply_defaults(values);
  if (const std::string spawned = resolve_spawn(values); !spawned.empty()) print_notice(spawned);
  return resolve_run_config(values);
}

std::string resolve_spawn(ConfigValues& values) {
  const auto spawn = values.find("spawn");
  if (spawn == values.end() || spawn->second.value != "on") return "";
  const auto is = [&](const char* name, const char* value) {
    const auto found = values.find(name);
    return found != values.end() && found->second.value == value;
  };
  if (!is("gpu-devices", "") || !is("devices", ""))
    throw io::ConfigError("--spawn beside several devices of a rank: expected --spawn N");
  const bool on_cpu = is("device", "cpu");
  const UsableGpus usable = on_cpu ? UsableGpus{} : usable_gpus();
  const int gpus = static_cast<int>(usable.indices.size());
  const int ranks = gpus > 0 ? gpus : default_threads(1);
  spawn->second.value = std::to_string(ranks);
  const std::string& unused = usable.passed_over;
  const std::string of = gpus > 0 ? "GPU" : "core that this process may use",
                    why = on_cpu            ? " (--device cpu)"
                          : !unused.empty() ? (gpus > 0 ? " that can be used; " : "; ") + unused
                          : gpus > 0        ? " that is visible"
                                            : ": no GPU is visible";
  return "--spawn starts " + spawn->second.value +
         (ranks == 1 ? " rank, for the " : " ranks, one for each ") + of + why;
}

bool in_launched_group(const RunConfig& config) {
  return config.spawn == 0 && identity_of(config).world_size > 1;
}

bool has_rank_zero(const RunConfig& config) {
  return config.spawn > 0 || identity_of(config).rank == 0;
}

}  // namespace tools
