// Reads the command's options as train itself does.
#include "tools/commands/restart_resume.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "io/base/files/io_error.h"
#include "tools/folder/run_reference.h"
#include "tools/options/input/config_sources.h"
#include "tools/report/output/exit_codes.h"

namespace tools {
namespace {

// Returns values by name, from the source of highest precedence; without defaults.
ConfigValues values_given(const LaunchOptions& options) {
  ConfigValues values;
  std::string config_file;
  CLI::App app("", "engine train");
  add_train_options(app, values, config_file);
  if (!parse(app, Arguments(options.command.begin() + 1, options.command.end()))) return {};
  for (const std::string& variable : options.environment) {
    const std::size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    for (const OptionSpec& option : train_options())
      if (name == environment_name(option.name) ||
          (!option.alias.empty() && name == environment_name(option.alias)))
        values.try_emplace(option.name, ConfigValue{variable.substr(equals + 1), name});
  }
  apply_environment(values);
  if (!config_file.empty()) apply_config_file(config_file, values);
  return values;
}

bool asks_for_help(const std::string& argument) { return argument == "--help" || argument == "-h"; }

// Returns true for --resume DIR, or a checkpoint in its run's folder: train saves there.
bool goes_on_in_its_folder(ConfigValues values) {
  try {
    static_cast<void>(take_resumed_run(values));
  } catch (const io::Error&) {
    return true;  // train reports the error
  }
  return !values["save-dir"].value.empty();
}

}  // namespace

RestartResume resume_after_restart(const LaunchOptions& options) {
  if (options.restarts.max == 0 || options.command.front() != "train" ||
      std::ranges::any_of(options.command, asks_for_help))
    return {};
  ConfigValues values;
  try {
    values = values_given(options);
  } catch (const UsageError&) {
    return {};
  } catch (const io::ConfigError&) {
    return {};
  }
  const std::string restarts = "--max-restarts " + std::to_string(options.restarts.max) + ": ";
  const std::string folder = values["save-dir"].value;
  if (folder.empty() && goes_on_in_its_folder(values)) return {};
  if (folder == "auto")
    return {{},
            restarts +
                "--save-dir auto makes a new folder, so every restart begins from step 0 in "
                "another one; name the folder to continue it"};
  if (folder.empty())
    return {{}, restarts + "train has no --save-dir, so every restart begins from step 0"};
  if (!values["resume"].value.empty()) return {};
  // It begins a new run, once: a restart resumes that one.
  if (values.contains("overwrite"))
    return {{"--resume", "none"},
            restarts + "train continues from the newest checkpoint in " + folder};
  return {{"--resume", "auto"},
          restarts + "train continues from the newest checkpoint in " + folder +
              " (--resume auto; give --resume none to start over)"};
}

}  // namespace tools
