// The parsed options of `engine launch`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/options/input/command_line.h"

namespace tools {

struct LaunchNodes {
  int count = 1;
  std::optional<int> min_count;         // of an elastic job, of which `count` is the maximum
  std::optional<int> rank;              // this node's
  std::vector<std::string> hosts = {};  // of --hosts or --hostfile, in order of node rank
};

struct LaunchRestarts {
  int max = 0;                          // of all workers
  bool respawn = false;                 // single workers of an elastic job are started again
  std::optional<int> longest_pause_ms;  // before that
};

// Empty: not said.
struct LaunchRendezvous {
  std::string master_addr;
  std::optional<int> master_port;  // 0: any free port
  std::string id, endpoint;        // endpoint: HOST:PORT or file:///PATH
  bool standalone = false;
};

// As given; checked once the number of local ranks is known.
struct LaunchOutput {
  std::string redirects, tee, log_dir, local_ranks_filter;
};

struct LaunchOptions {
  // "train", ...: the commands that the program itself can run as workers.
  std::vector<std::string> own_commands;
  LaunchNodes nodes;
  std::string nproc_per_node;  // "4", "gpu", "cpu", "auto"; "" = not said
  LaunchRestarts restarts;
  LaunchRendezvous rendezvous;
  int monitor_interval_ms = 100;
  LaunchOutput output;
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
