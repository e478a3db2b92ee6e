// Runs a job on several hosts from one command: starts the same launch on each of them by ssh.
#pragma once

#include <string>
#include <vector>

#include "tools/launch/nodes/launch_options.h"
#include "tools/launch/nodes/launch_plan.h"
#include "tools/launch/workers/worker_group.h"

namespace tools {

// Throws UsageError and io::ConfigError for names that are invalid, repeated, or cannot reach the
// rendezvous.
void check_hosts(const LaunchOptions& options, const LaunchPlan& plan);

// Returns true for a name of this host, which needs no ssh.
bool is_this_host(const std::string& host);

// Returns the command that runs `launch` for node `node_rank`: ssh and its arguments, or this
// program itself. `program`: path of this program, which is assumed to be the same on all hosts.
std::vector<std::string> node_command(const LaunchOptions& options, const LaunchPlan& plan,
                                      int node_rank, const std::string& program,
                                      const std::string& directory);

// Starts the nodes, prints their output, forwards signals, and ends all nodes if one fails; the
// decisive failure is the last line. Returns the exit code of this program. REQUIRES: check_hosts()
// has passed.
int run_remote_nodes(const LaunchOptions& options, const LaunchPlan& plan, GuardProcess& guard,
                     SignalInbox& inbox);

}  // namespace tools
