// The parsed options of `engine launch`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/options/input/command_line.h"

namespace tools {

struct LaunchOptions {
  // "train", ...: the commands of this program that can run as a worker.
  std::vector<std::string> own_commands;
  int nnodes = 1;
  int min_nodes = 0;  // for an elastic job, whose maximum is nnodes; 0: not given
  bool respawn = false;
  std::optional<int> respawn_pause_ms;  // maximum pause
  std::string nproc_per_node;           // "4", "gpu", "cpu", "auto"; "": not given
  std::optional<int> node_rank;
  std::string master_addr;             // "": not given
  std::optional<int> master_port;      // 0: any free port
  std::string rdzv_id, rdzv_endpoint;  // endpoint: HOST:PORT or file:///PATH
  bool standalone = false;
  std::vector<std::string> hosts;  // from --hosts or --hostfile, in order of node rank
  int max_restarts = 0;
  int monitor_interval_ms = 100;
  std::string redirects, tee, log_dir,
      local_ranks_filter;  // as given; checked when the number of local ranks is known
  std::vector<std::string> environment;  // K=V
  bool dry_run = false, kill_orphans = true;
  bool controlled = false;           // started by another launch, which controls it through stdin
  std::string directory;             // working directory; "": unchanged
  std::vector<std::string> command;  // not empty
};

// Searches ENGINE_NAME and PET_NAME for options that are not given. Prints help and returns nothing
// for --help. Throws UsageError and io::ConfigError, which name the option or variable, its value
// and the expected form.
std::optional<LaunchOptions> parse_launch_options(const Arguments& arguments);

// Returns the names of the options that may be set as ENGINE_NAME, e.g. "max-restarts".
std::vector<std::string> launch_option_names();

// Reads the hosts of a file: one per line, "name [slots=N]", # starts a comment. `slots` becomes
// the common number of slots, "" without one.
std::vector<std::string> read_host_file(const std::string& path, std::string& slots);

}  // namespace tools
