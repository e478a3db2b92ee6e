// Measures what sync_choice.h needs, and applies the choice.
#include "tools/run/session/sync_auto.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <set>
#include <string>

#include "backends/identity/host_layout.h"
#include "engine/averaging/policies/averaging_plan.h"
#include "engine/train/replicas/replica_sync.h"
#include "io/base/files/io_error.h"
#include "io/base/text/text_parts.h"
#include "io/base/time/deadline.h"
#include "tools/folder/resume_source.h"
#include "tools/folder/run_record.h"
#include "tools/folder/run_reference.h"
#include "tools/launch/group/joining_options.h"
#include "tools/launch/group/link_measure.h"
#include "tools/options/table/option_rules.h"
#include "tools/report/output/exit_codes.h"
#include "tools/run/choices/compute_choice.h"
#include "tools/run/choices/sync_choice.h"
#include "tools/run/session/discarded_run.h"
#include "tools/run/session/train_session.h"

namespace tools {
namespace {

using Clock = std::chrono::steady_clock;
using Method = AveragingOptions::Method;

constexpr const char* kSource = "--sync auto";
constexpr double kStepSeconds = 0.3;
constexpr int kMaxSteps = 50, kWarmup = 2;
constexpr int kDeviceWarmup = 6;  // a step is captured as a graph in the third and fourth
constexpr std::size_t kHostsInAllPairs = 4;

// The same training without averaging, which keeps nothing.
SessionOptions scratch_options(const RunConfig& config, std::shared_ptr<LoadedData> data) {
  SessionOptions options = discarded_run(config);
  options.averaging = {.method = Method::kNone, .name = "none"};
  options.data.given = std::move(data);
  options.keeping.run_id.clear();
  options.log_every = 0;
  return options;
}

double largest_of_ranks(backends::Communicator& control, double own) {
  std::vector<double> all(static_cast<std::size_t>(control.world_size()));
  control.all_gather(&own, sizeof own, all.data());
  return *std::ranges::max_element(all);
}

// Returns the seconds of a step of the slowest rank.
double measure_step(TrainSession& session, backends::Communicator& control) {
  const std::atomic<int> never{0};
  engine::Trainer trainer = session.make_trainer(never);
  const auto timed = [&](int steps) {
    const auto start = Clock::now();
    for (int i = 0; i < steps; ++i) trainer.step();
    trainer.wait_for_steps();
    return base::seconds_since(start) / steps;
  };
  static_cast<void>(timed(session.facts().ranks.on_device() ? kDeviceWarmup : kWarmup));
  const double once = largest_of_ranks(control, timed(1));
  const double fit = std::clamp(kStepSeconds / std::max(once, 1e-9), 2.0, double{kMaxSteps});
  return largest_of_ranks(control, timed(static_cast<int>(fit)));
}

void measure_training(const RunConfig& config, backends::Group& group,
                      backends::Communicator& control, const std::shared_ptr<LoadedData>& data,
                      SyncFigures& figures) {
  group.set_activity("measuring a step for --sync auto");
  TrainSession session(scratch_options(config, data), group);
  static_cast<void>(session.start_state());
  figures.steps = session.facts().length.total_steps;
  figures.step_s = measure_step(session, control);
  const engine::FlatBuffer& gradients = session.state().model.parameters.gradients;
  figures.elements = gradients.size();
  figures.bytes = static_cast<std::int64_t>(gradients.bytes());
  figures.fragments =
      engine::plan_streaming({.every = kMaxCount, .fragments = 0, .outer = {}}, gradients)
          .fragments;
}

// Returns pairs of hosts, by their first ranks: all of few hosts, else neighbors in a ring. Two
// ranks stand for the others of one host.
std::vector<RankPair> pairs_to_measure(const backends::Group& group, int& hosts) {
  std::vector<int> ranks;
  for (const std::vector<int>& host : backends::host_layout(group).hosts)
    ranks.push_back(host.front());
  hosts = static_cast<int>(ranks.size());
  if (ranks.size() == 1) return {{0, 1}};
  std::vector<RankPair> pairs;
  const bool all = ranks.size() <= kHostsInAllPairs;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    for (std::size_t j = i + 1; j < ranks.size(); ++j)
      if (all || j == i + 1 || (i == 0 && j + 1 == ranks.size()))
        pairs.emplace_back(ranks[i], ranks[j]);
  return pairs;
}

void measure_links_of(backends::Group& group, backends::Communicator& control,
                      SyncFigures& figures) {
  const std::vector<RankPair> pairs = pairs_to_measure(group, figures.hosts);
  // Between hosts the rate is the cable's, whichever backend trains; within one it is memory's.
  const std::string backend = figures.hosts > 1           ? "socket"
                              : group.backend() == "nccl" ? "auto"
                                                          : "";
  figures.in_memory = true;
  for (const RankPair& pair : pairs)
    for (const Link& link : measure_round(group, control, {pair}, backend)) {
      if (link.backend != "shm" && link.backend != "inproc") figures.in_memory = false;
      figures.round_trip_s = std::max(figures.round_trip_s, 1e-3 * link.round_trip_ms());
      const double rate = 1e9 * link.slower_gb_s();
      if (!figures.link.empty() && rate >= figures.link_bytes_per_s) continue;
      figures.link_bytes_per_s = rate;
      figures.link = "ranks " + std::to_string(link.a) + " and " + std::to_string(link.b) + " (" +
                     link.backend + ")";
    }
}

bool is_given(const RunConfig& config, const char* name) {
  return precedence_of(config.origin.at(name)) > Precedence::kDefault;
}

SyncLimits limits_of(const RunConfig& config) {
  SyncLimits limits{.every = {}, .compression = {}, .sparse = config.averaging.sparse};
  if (is_given(config, "sync-every")) limits.every = config.averaging.every;
  if (is_given(config, "compress")) limits.compression = config.averaging.compression;
  return limits;
}

// Options as lines of "name value", to be sent.
std::string sent_lines(const std::vector<std::pair<std::string, std::string>>& options) {
  std::string lines;
  for (const auto& [name, value] : options) lines += name + " " + value + "\n";
  return lines;
}

// Returns true if the launcher that has restarted this process has begun the run in the folder.
bool has_begun(const std::string& folder) {
  if (folder.empty()) return false;
  std::string fault;  // reported when the folder is taken
  const std::optional<RunRecord> record = find_run_record(folder, fault);
  return has_start_of(record.value_or(RunRecord{}), launch_id());
}

// Returns the options of the run that this start continues, if there is one: --sync and those that
// depend on it.
std::string recorded_options(const RunConfig& config) {
  const std::string& directory = config.keeping.directory;
  Resume resume = config.keeping.resume;
  if (was_restarted() && has_begun(directory)) resume = {Resume::From::kOwnFolder};
  if (!resume.is_wanted()) return "";
  ConfigValues saved;
  std::string fault;  // reported when the folder is taken
  if (const std::optional<RunRecord> record =
          find_run_record(resume.is_automatic() ? directory : resume.path, fault))
    saved = record->options;
  else if (const auto source = resume_source(resume, directory))
    saved = options_in(source->description, source->path);
  std::vector<std::string> names{"sync"};
  for (const char* other : {"sync", "compress"})
    for (const std::string& name : options_requiring(other)) names.push_back(name);
  std::vector<std::pair<std::string, std::string>> options;
  for (const std::string& name : names)
    if (const auto found = saved.find(name);
        found != saved.end() && !found->second.value.empty() &&
        (name == "sync" || found->second.value != find_option(name)->default_value))
      options.emplace_back(name, found->second.value);
  return options.empty() || options.front().first != "sync" ? "" : sent_lines(options);
}

// Options that the user has given stay, and those that depend on what they replace are left out.
void apply_choice(const std::string& lines, RunConfig& config) {
  ConfigValues values;
  std::set<std::string> left_out;
  for (const auto& [name, value] : config.origin)
    if (value.source != kUnusedSource) values.emplace(name, value);
  for (const std::string& line : base::split_text(lines, '\n')) {
    if (line.empty()) continue;
    const std::size_t space = line.find(' ');
    const std::string name = line.substr(0, space), value = line.substr(space + 1);
    const auto found = values.find(name);
    if (left_out.contains(name)) continue;
    if (name == "sync" || found == values.end() ||
        precedence_of(found->second) == Precedence::kDefault)
      values[name] = {value, kSource};
    else if (found->second.value != value)
      for (const std::string& other : options_requiring(name)) left_out.insert(other);
  }
  const RunConfig chosen = resolve_run_config(values);
  config.averaging = chosen.averaging;
  config.origin = chosen.origin;
  config.keeping.configuration = chosen.keeping.configuration;
}

// Returns those of the lines that apply as "sync params, sync-every 8": a given option replaces a
// recorded one, and those that depend on it.
std::string text_in_force(const std::string& lines, const ConfigValues& origin) {
  std::string text;
  for (const std::string& line : base::split_text(lines, '\n')) {
    const std::size_t space = line.find(' ');
    const auto found = origin.find(line.substr(0, space));
    if (line.empty() || found == origin.end() || found->second.source != kSource) continue;
    text += (text.empty() ? "" : ", ") + line;
  }
  return text;
}

// Returns the choice as lines.
std::string measure_and_choose(const RunConfig& config, backends::Group& group,
                               backends::Communicator& control, ChosenSync& result) {
  if (config.keeping.init_from.empty())
    result.data = load_collectively(config.data, group, control, result.data);
  SyncFigures figures;
  figures.ranks = group.world_size();
  measure_training(config, group, control, result.data, figures);
  measure_links_of(group, control, figures);
  const std::vector<SyncCandidate> candidates = sync_candidates(figures, limits_of(config));
  const std::size_t chosen = choose_candidate(candidates);
  result.lines = base::split_text(sync_choice_text(figures, candidates, chosen), '\n');
  return sent_lines(candidates[chosen].options);
}

}  // namespace

ChosenSync choose_sync(const RunConfig& config, backends::Group& group,
                       std::shared_ptr<LoadedData> data) {
  ChosenSync result{config, std::move(data), {}};
  if (config.averaging.method != Method::kAuto) return result;
  const auto control = host_communicator(group);
  std::string lines;
  engine::run_on_root(
      *control, [&] { lines = recorded_options(config); }, exit_code_of);
  engine::broadcast_text(*control, lines);
  const bool is_recorded = !lines.empty();
  if (!is_recorded && group.world_size() == 1) {
    lines = is_given(config, "sync-every") ? "sync params\n" : "sync grad\n";
    result.lines = {"Sync auto: one rank, which averages nothing: " +
                    lines.substr(0, lines.size() - 1)};
  } else if (!is_recorded) {
    // Every rank has the same figures, but rounding may differ between processors.
    lines = measure_and_choose(config, group, *control, result);
    engine::broadcast_text(*control, lines);
  }
  apply_choice(lines, result.config);
  if (is_recorded)
    result.lines = {"Sync auto: as this run has recorded: " +
                    text_in_force(lines, result.config.origin)};
  return result;
}

}  // namespace tools
