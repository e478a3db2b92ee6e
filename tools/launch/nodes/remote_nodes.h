// A job on several hosts from one command: the same launch on each of them, by ssh.
#pragma once

#include <string>
#include <vector>

#include "tools/launch/nodes/launch_options.h"
#include "tools/launch/nodes/launch_plan.h"
#include "tools/launch/workers/worker_group.h"

namespace tools {

// Throws UsageError and io::ConfigError for names that are none, come twice, or cannot reach the
// meeting place.
void check_hosts(const LaunchOptions& options, const LaunchPlan& plan);

// True for a name of this host, which needs no ssh.
bool is_this_host(const std::string& host);

// What runs `launch` for node `node_rank`: ssh and its arguments, or this program itself.
// `program`: path of this program, taken to be the same on all hosts.
std::vector<std::string> node_command(const LaunchOptions& options, const LaunchPlan& plan,
                                      int node_rank, const std::string& program,
                                      const std::string& directory);

// Starts the nodes, shows what they print, passes signals on, ends all when one fails; the failure
// that decided is the last line. Returns the exit code of this program. REQUIRES: check_hosts() has
// passed.
int run_remote_nodes(const LaunchOptions& options, const LaunchPlan& plan, GuardProcess& guard,
                     SignalInbox& inbox);

}  // namespace tools
