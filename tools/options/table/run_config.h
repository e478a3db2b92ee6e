// Holds every value of a training run, resolved and checked, as plain data: the structures that the
// parts of a run take, and the few values of the program around them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/group.h"
#include "backends/identity/identity.h"
#include "tools/options/table/listen_address.h"
#include "tools/options/table/option_table.h"
#include "tools/options/table/session_options.h"
#include "tools/options/table/value_text.h"
#include "tools/report/output/run_log.h"

namespace tools {

struct RunConfig : SessionOptions {
  enum class Progress { kAuto, kRich, kNever };
  struct Console {
    Progress progress = Progress::kAuto;
    LogOptions log;
    std::string file;  // that also gets all lines; "": none
    bool verbose = false, all_ranks = false;
    std::vector<int> ranks{0};  // that print their lines
  };
  struct Tensorboard {
    bool in_run_folder = false;
    std::string folder;                // another one
    std::int64_t histogram_every = 0;  // steps; 0: never
    std::int64_t samples = 0;          // shown with each evaluation
  };
  struct Trace {
    std::string path;  // "": none
    std::int64_t first_step = 1, last_step = kMaxCount;
  };

  // group
  backends::IdentityRequest identity;
  backends::GroupOptions group;  // backend and time limits; `identity` determines the ranks
  bool measured_slices = false;  // the slices of sums follow the rates of links
  int spawn = 0;                 // 0 = this process is one rank
  int min_ranks = 0;             // for an elastic job, beside data.max_ranks
  // State.
  bool overwrite = false, save_rank_models = false;
  std::vector<std::string> allowed_changes;  // option names, or "data"
  // report
  Console console;
  std::string metrics, flight_dir;
  std::int64_t log_gpu = 0;
  Tensorboard tensorboard;
  std::optional<ListenAddress> prometheus{};  // where to serve metrics
  Trace trace;
  // preempt
  std::vector<int> preempt_signals;
  bool requeue = false;

  // Text (canonical) and source of every option. An option that plays no part in this run (momentum
  // with adamw, epochs beside steps) is unset here and kUnusedSource.
  ConfigValues origin;

  bool is_elastic() const { return data.max_ranks > 0; }
};

// Checks types, ranges, and combinations. Missing entries count as defaults. Throws ConfigError
// that names option, value, source and the expected form. If two options exclude each other, the
// one whose source has higher precedence applies; with equal precedence it is an error. An explicit
// option that needs another choice (--sync-every without --sync params) is also an error, unless a
// source of higher precedence made that choice.
RunConfig resolve_run_config(const ConfigValues& values);

// Returns all values that are set, as TOML in tables by group, for checkpoints; apply_config_file
// reads it back. Pass RunConfig::origin.
std::string to_toml(const ConfigValues& values);
// Does the same for a --config file, with each $ of a value escaped.
std::string to_config_file(const ConfigValues& values);
// Returns the options that must agree on all ranks (OptionSpec::agreement), as "--name" and value,
// in the order of the table. A long value is shortened and gets a digest. Pass RunConfig::origin.
std::vector<std::pair<std::string, std::string>> agreed_settings(const ConfigValues& values);

}  // namespace tools
