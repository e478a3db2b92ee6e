// Resolves the configuration of a benchmark run and implements the measuring loop.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <iterator>
#include <string_view>

#include "models/model_catalog.h"
#include "tools/bench/step/bench_step.h"
#include "tools/launch/group/joining_options.h"
#include "tools/options/input/config_sources.h"
#include "tools/options/table/value_check.h"
#include "tools/report/output/build_info.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/report/text/session_text.h"
#include "tools/run/choices/compute_choice.h"
#include "tools/run/session/sync_auto.h"
#include "tools/run/session/train_session.h"

namespace tools {
namespace {

constexpr int kStepsADecision = 4;  // makes the cost of the decisions negligible
constexpr int kStepsOnDevice = 20;  // same, for waiting until a device has completed them
constexpr int kWarmupOnDevice = 6;  // a step is captured as a graph in the third and fourth

// Returns the number of ranks of the group that this configuration will run in.
std::int64_t world_of(const RunConfig& config) {
  const auto devices =
      static_cast<std::int64_t>(std::max<std::size_t>(1, config.compute.device.devices.size()));
  if (config.spawn > 0) return config.spawn * devices;
  return devices * identity_of(config).world_size;
}

void invent_data(ConfigValues& values, const std::string& model, std::int64_t synthetic_size) {
  const models::ModelOptions wanted = models::default_options(model);
  const auto set = [&values](const char* name, const std::string& value) {
    values.emplace(name, ConfigValue{value, "bench:default"});
  };
  std::string shape;
  for (int d = 0; d < wanted.sample_shape.rank(); ++d)
    shape += (d ? "x" : "") + std::to_string(wanted.sample_shape[d]);
  set("dataset", "synthetic");
  set("synthetic-shape", shape);
  set("synthetic-size", std::to_string(synthetic_size));
  set("synthetic-classes", std::to_string(wanted.classes));
}

// The options of `engine train` that would have no effect here. They are rejected with and without
// a value.
constexpr const char* kNotMeasured[] = {"save-dir",    "resume",     "metrics",
                                        "tensorboard", "prometheus", "elastic"};

void add_refused_option(CLI::App& app, const std::string& flag) {
  const auto refuse = [flag](const std::string&) {
    throw UsageError(flag +
                     ": a benchmark starts over, saves nothing and writes no metrics, and its "
                     "ranks stay");
  };
  app.add_option_function<std::string>(flag, refuse)->expected(0, 1)->group("");
}

}  // namespace

void add_step_options(CLI::App& app, StepBench& bench, const char* help) {
  app.add_option("--seconds", bench.seconds, help)
      ->transform(number_above_zero())
      ->capture_default_str();
  app.add_option("--steps", bench.steps, "number of steps to measure, instead of --seconds")
      ->transform(whole_number(1, kMaxCount))
      ->excludes("--seconds");
  app.add_option("--warmup", bench.warmup, "warm-up steps")
      ->transform(whole_number(0))
      ->capture_default_str();
}

std::map<std::string, std::string> step_defaults(const char* batch_option, int batch) {
  return {{"model", "convnet"}, {batch_option, std::to_string(batch)},
          {"threads", "1"},     {"shuffle", "false"},
          {"workers", "0"},     {"lr", "0.01"},
          {"momentum", "0.9"}};
}

void add_train_options(CLI::App& app, ConfigValues& values,
                       const std::vector<std::string>& without) {
  std::vector<std::string> names;
  for (const OptionSpec& option : train_options())
    if (std::ranges::find(without, option.name) == without.end() &&
        std::ranges::find(kNotMeasured, std::string_view(option.name)) == std::end(kNotMeasured))
      names.push_back(option.name);
  add_table_options(app, values, names);
  for (const char* name : kNotMeasured) add_refused_option(app, std::string("--") + name);
}

std::string own_defaults_text(const std::map<std::string, std::string>& defaults) {
  std::string text =
      "Defaults that differ from those of engine train: --eval-every 0, --log-every 0";
  for (const auto& [name, value] : defaults) text += ", --" + name + " " + value;
  return text + ".";
}

RunConfig resolve_bench(ConfigValues values, const std::map<std::string, std::string>& defaults,
                        std::int64_t synthetic_size) {
  apply_environment(values);
  // This source takes precedence over the table's defaults, but not over any value of the user.
  for (const auto& [name, value] : defaults)
    if (name != "batch-size-per-device" || !values.contains("batch-size"))
      values.emplace(name, ConfigValue{value, "bench:default"});
  values.emplace("eval-every", ConfigValue{"0", "bench:default"});
  values.emplace("log-every", ConfigValue{"0", "bench:default"});
  const auto resolve = [&](std::int64_t size) {
    ConfigValues all = values;
    const auto dataset = all.find("dataset");
    if (dataset == all.end() || dataset->second.value == "synthetic")
      invent_data(all, all.at("model").value, size);
    apply_defaults(all);
    return resolve_run_config(all);
  };
  if (synthetic_size > 0) return resolve(synthetic_size);
  const RunConfig config = resolve(1);
  return resolve(config.data.batch_of_rank > 0 ? config.data.batch_of_rank * world_of(config)
                                               : config.data.sampling.global_batch);
}

StepTimes measure_steps(const RunConfig& config, const StepBench& bench, backends::Group& group) {
  using Clock = std::chrono::steady_clock;
  const ChosenSync chosen = choose_sync(config, group);
  for (const std::string& line : chosen.lines)
    if (group.rank() == 0) print_notice(line);
  SessionOptions options = chosen.config;
  options.data.given = chosen.data;
  TrainSession session(options, group);
  static_cast<void>(session.start_state());
  const std::atomic<int> never{0};
  engine::Trainer trainer = session.make_trainer(never);
  const auto control = host_communicator(group);
  const bool device = session.facts().ranks.on_device();
  for (int i = 0; i < (device ? std::max(bench.warmup, kWarmupOnDevice) : bench.warmup); ++i)
    trainer.step();
  trainer.wait_for_steps();
  std::vector<engine::StepPhases> own;
  own.reserve(1 << 14);
  control->barrier();
  const auto start = Clock::now();
  while (true) {
    const bool time_left =
        std::chrono::duration<double>(Clock::now() - start).count() < bench.seconds ||
        own.size() < 3;
    double more = bench.steps > 0
                      ? static_cast<double>(own.size()) < static_cast<double>(bench.steps)
                      : time_left;
    if (group.world_size() > 1) control->broadcast(&more, sizeof more, 0);
    if (more == 0) break;
    const std::size_t first = own.size();
    const auto began = Clock::now();
    for (int i = 0; i < (device ? kStepsOnDevice : kStepsADecision); ++i) {
      if (bench.steps > 0 && own.size() >= static_cast<std::size_t>(bench.steps)) break;
      trainer.step();
      own.push_back(trainer.phases());
    }
    if (!device) continue;
    // The host only launches steps: only their total time is known, and it is reported as forward.
    trainer.wait_for_steps();
    const double each = std::chrono::duration<double>(Clock::now() - began).count() /
                        static_cast<double>(own.size() - first);
    for (std::size_t i = first; i < own.size(); ++i) own[i] = {.forward = each};
  }
  StepTimes times{start_line(session.facts(), ENGINE_VERSION),
                  group.backend(),
                  session.facts().batch.global,
                  {}};
  std::vector<engine::StepPhases> all(own.size() * static_cast<std::size_t>(group.world_size()));
  control->all_gather(own.data(), own.size() * sizeof own[0], all.data());
  for (auto begin = all.begin(); begin != all.end();
       begin += static_cast<std::ptrdiff_t>(own.size()))
    times.ranks.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(own.size()));
  return times;
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(std::lround(q * static_cast<double>(values.size() - 1)))];
}

double StepTimes::rate() const {
  std::vector<double> totals;
  for (const engine::StepPhases& step : ranks.front()) totals.push_back(step.total());
  return static_cast<double>(global_batch) / quantile(std::move(totals), 0.5);
}

std::vector<PhaseRow> summarize(const StepTimes& times) {
  using Phase = double (*)(const engine::StepPhases&);
  constexpr std::pair<const char*, Phase> kPhases[] = {
      {"data", [](const engine::StepPhases& p) { return p.data; }},
      {"forward", [](const engine::StepPhases& p) { return p.forward; }},
      {"backward", [](const engine::StepPhases& p) { return p.backward; }},
      {"communication", [](const engine::StepPhases& p) { return p.communication; }},
      {"update", [](const engine::StepPhases& p) { return p.update; }},
      {"step", [](const engine::StepPhases& p) { return p.total(); }}};
  std::vector<PhaseRow> rows;
  for (std::size_t r = 0; r < times.ranks.size(); ++r) {
    for (const auto& [name, phase] : kPhases) {
      std::vector<double> values;
      for (const engine::StepPhases& step : times.ranks[r]) values.push_back(1e3 * phase(step));
      rows.push_back({static_cast<int>(r), name, quantile(values, 0), quantile(values, 0.5),
                      quantile(values, 0.99)});
    }
    for (std::size_t i = rows.size() - std::size(kPhases); i < rows.size(); ++i)
      rows[i].share = rows[i].p50_ms / std::max(rows.back().p50_ms, 1e-12);
  }
  return rows;
}

}  // namespace tools
