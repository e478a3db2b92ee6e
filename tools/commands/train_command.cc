// Implements `engine train`.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>

#include "backends/backend_error.h"
#include "io/base/machine/cpu_affinity.h"
#include "tools/commands/command.h"
#include "tools/commands/train_instead.h"
#include "tools/folder/output_paths.h"
#include "tools/folder/run_reference.h"
#include "tools/launch/group/group_flags.h"
#include "tools/launch/group/joining_options.h"
#include "tools/launch/group/run_group.h"
#include "tools/launch/workers/stop_signals.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/report/output/shell_text.h"
#include "tools/report/text/stop_report.h"
#include "tools/run/choices/train_arguments.h"
#include "tools/run/data/session_data.h"
#include "tools/run/rank/console_run.h"
#include "tools/run/session/run_views.h"

namespace tools {
namespace {

// Returns e.g. "engine train --lr 0.1 --save-dir 'my run'", which users can repeat in a shell.
std::string command_text(const Arguments& arguments) {
  std::string text = "engine train";
  for (const std::string& argument : arguments) text += " " + shell_word(argument);
  return text;
}

// Returns true if a rank was lost, false for the run's own end.
bool is_loss(int code) {
  constexpr int kFatal[] = {SIGKILL, SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE};
  return code == kExitUnavailable ||
         std::ranges::any_of(kFatal, [&](int signal) { return code == 128 + signal; });
}

// Prints nothing under a launcher, which restarts the ranks itself.
void print_way_to_continue(const RunConfig& config) {
  if (config.keeping.directory.empty() || config.keeping.directory == "auto" || is_one_of_many())
    return;
  if (const std::string text = continue_text(config.keeping.directory); !text.empty())
    print_notice(text);
}

// Trains on the ranks that this process has to start or to be.
int train_ranks(const RunConfig& config, const std::string& command,
                const std::atomic<int>& stop_signal) {
  try {
    const int code = run_group(config, [&](backends::Group& group) {
      return *run_on_console({config, command, stop_signal}, group);
    });
    if (is_loss(code)) print_way_to_continue(config);
    return code;
  } catch (const backends::PeerError&) {
    if (has_rank_zero(config)) print_way_to_continue(config);
    throw;
  }
}

int train_elastic(const RunConfig& config, const std::string& command,
                  const std::atomic<int>& stop_signal) {
  RetainedRun retained;  // made before --spawn forks the ranks, so each rank has its own
  // Load before other processes wait for this one; ranks of --spawn share the memory. The coding
  // that --init-from requires is known only later.
  if (config.keeping.init_from.empty()) retained.state.data = load_alone(config.data);
  return run_elastic(config, [&](backends::Group& group, const backends::View& view,
                                 const std::function<bool()>& pause) {
    if (view.is_new_member) {  // the others have continued without this rank
      retained.state.state = {};
      retained.state.writer.reset();
      retained.run = {};
    }
    const ElasticGeneration generation{view, pause, retained};
    const std::optional<int> code =
        run_on_console({config, command, stop_signal, /*data=*/nullptr, &generation}, group);
    if (code == kExitLeft) {  // another rank saves there from now on
      retained.state.writer.reset();
      retained.run = {};
    }
    return code;
  });
}

void check_ranks(int spawn) {
  check_spawn(spawn);
  if (const int cpus = base::count_of_cpus(); spawn > cpus)
    print_notice(std::to_string(spawn) + " ranks share " + std::to_string(cpus) +
                 (cpus == 1 ? " CPU" : " CPUs") + ": steps are slower than with one rank per CPU");
}

void check_outputs(const RunConfig& config) {
  check_output_path("metrics", config.metrics, config.keeping.directory);
  check_output_path("trace", config.trace.path, config.keeping.directory);
  check_output_path("log-file", config.console.file, config.keeping.directory);
  if (!config.trace.path.empty()) check_new_file(config.trace.path, {});
  for (const std::string& other : {config.metrics, config.trace.path})
    if (!config.console.file.empty() && config.console.file == other)
      throw io::ConfigError("--log-file " + other + ": another output has this name");
  check_views(config, /*joins=*/config.is_elastic() && config.spawn == 0);
}

// A scheduler's warning ends the run in order, also if nothing can be saved.
const std::atomic<int>& install_signals(const RunConfig& config) {
  std::vector<int> signals = config.preempt_signals;
  const bool leaves =
      config.is_elastic() && std::ranges::find(signals, kLeaveSignal) == signals.end();
  for (const int signal : kSaveSignals)
    if (!leaves || signal != kLeaveSignal) signals.push_back(signal);
  std::signal(SIGPIPE, SIG_IGN);  // if a reader of the output leaves, a write fails
  const std::atomic<int>& stop_signal = install_stop_signals(signals);
  if (leaves) install_leave_signal();
  if (!launch_id().empty()) expect_end_by_parent();
  return stop_signal;
}

}  // namespace

int train_command(const Arguments& arguments) {
  Instead instead;
  const std::optional<TrainArguments> parsed =
      parse_train_arguments(arguments, [&](CLI::App& app) { add_instead(app, instead); });
  if (!parsed) return kExitOk;
  std::vector<std::string> notices;
  const RunConfig config = read_train_config(*parsed, notices);
  if (!instead.print_config)
    for (const std::string& notice : notices) print_notice(notice);
  if (const std::optional<int> code = run_instead(instead, config)) return *code;
  check_ranks(config.spawn);
  if (has_rank_zero(config)) check_outputs(config);
  set_log_options(config.console.log);
  const std::atomic<int>& stop_signal = install_signals(config);
  const std::string command = command_text(arguments);
  return config.is_elastic() ? train_elastic(config, command, stop_signal)
                             : train_ranks(config, command, stop_signal);
}

}  // namespace tools
