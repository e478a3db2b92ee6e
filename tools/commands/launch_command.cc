// Implements `engine launch`.
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "backends/identity/launchers.h"
#include "io/base/files/io_error.h"
#include "tools/commands/command.h"
#include "tools/commands/restart_resume.h"
#include "tools/launch/nodes/control_line.h"
#include "tools/launch/nodes/local_node.h"
#include "tools/launch/nodes/remote_nodes.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/report/output/standard_output.h"

namespace tools {
namespace {

void report_other_launches(const LaunchPlan& plan) {
  if (plan.nnodes > 1) return;
  const std::string tasks = backends::started_tasks_text(backends::process_environment());
  if (!tasks.empty())
    print_notice("warning: each of several processes (" + tasks +
                 ") is a launcher of one node, whose ranks are a group of their own: for one "
                 "group of all nodes, give --nnodes N --master-addr HOST");
}

}  // namespace

int launch_command(const Arguments& arguments) {
  std::optional<LaunchOptions> options = parse_launch_options(arguments);
  if (!options) return kExitOk;
  for (const Command& command : commands()) options->own_commands.emplace_back(command.name);
  if (!options->directory.empty() && chdir(options->directory.c_str()) != 0)
    throw io::ConfigError("cannot change to the folder " + options->directory + " on this host: " +
                          std::strerror(errno) + "; expected the same folder on every host");
  std::unique_ptr<ControlLine> control;
  if (options->controlled) {
    control = std::make_unique<ControlLine>(0);
    control->receive_setup();
  }
  const LaunchPlan plan = make_launch_plan(*options);
  if (!plan.unused_gpus.empty()) print_notice(plan.unused_gpus);
  report_other_launches(plan);
  check_hosts(*options, plan);
  if (options->dry_run) {
    print_output(plan_table(plan, *options));
    return kExitOk;
  }
  if (options->nodes.hosts.empty() &&
      plan.own_command) {  // those on other hosts see to it themselves
    const RestartResume resume = resume_after_restart(*options);
    options->command.insert(options->command.end(), resume.more.begin(), resume.more.end());
    if (!resume.notice.empty() && plan.node_rank == 0) print_notice(resume.notice);
  }
  SignalInbox inbox;
  GuardProcess guard(options->kill_orphans);
  if (!options->nodes.hosts.empty()) return run_remote_nodes(*options, plan, guard, inbox);
  if (control) control->report_to(inbox, options->kill_orphans);
  LocalNode node(*options, plan, guard, inbox, control ? control->secret() : "");
  return node.run(control.get());
}

}  // namespace tools
