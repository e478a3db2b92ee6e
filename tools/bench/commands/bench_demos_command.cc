// Implements `engine bench demos`: runs the same epoch in one process, on several devices of one
// process, in several processes, and in several processes with several devices each.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>

#include "engine/core/error.h"
#include "io/base/files/io_error.h"
#include "io/data/sources/dataset_registry.h"
#include "tools/bench/commands/bench_commands.h"
#include "tools/bench/step/bench_step.h"
#include "tools/launch/group/run_group.h"
#include "tools/launch/workers/stop_signals.h"
#include "tools/options/input/config_sources.h"
#include "tools/options/table/value_check.h"
#include "tools/options/table/value_text.h"
#include "tools/report/output/exit_codes.h"
#include "tools/run/session/train_session.h"

namespace tools {
namespace {

struct DemoMethod {
  const char* name;
  int processes, devices;
};
constexpr DemoMethod kDemoMethods[] = {{"single", 1, 1}, {"v1", 1, 2}, {"v2", 2, 1}, {"v3", 3, 2}};
constexpr std::int64_t kTrainingImages = 50'000;  // in CIFAR-10

struct DemoFlags {
  ReportFormat format = ReportFormat::kTable;
  std::int64_t limit_steps = 0;
};

struct DemoOutcome {
  std::int64_t steps, samples, steps_per_epoch, train_size;
  double seconds, median, after_first;  // for all steps; one step; all steps except the first
};

// Records the end time of each step.
class StepClock : public engine::TrainObserver {
 public:
  explicit StepClock(std::vector<double>& ends) : ends_(ends) {}
  void on_step(const engine::TrainProgress&) override {
    ends_.push_back(
        std::chrono::duration<double>(engine::PhaseTimer::Clock::now().time_since_epoch()).count());
  }

 private:
  std::vector<double>& ends_;
};

int train_rank(const RunConfig& config, backends::Group& group, std::int64_t limit_steps,
               DemoOutcome& outcome) {
  const std::atomic<int> never{0};
  TrainSession session(config, group);
  if (limit_steps > session.facts().batch.steps_per_epoch)
    throw UsageError("--limit-steps " + std::to_string(limit_steps) + ": an epoch has " +
                     std::to_string(session.facts().batch.steps_per_epoch) + " iterations");
  static_cast<void>(session.start_state());
  std::vector<double> ends;
  ends.reserve(static_cast<std::size_t>(session.facts().length.total_steps));
  session.add_observer(std::make_unique<StepClock>(ends));
  const engine::TrainResult result = session.run(never);
  if (group.rank() != 0) return kExitOk;
  std::vector<double> steps;
  for (std::size_t i = 1; i < ends.size(); ++i) steps.push_back(ends[i] - ends[i - 1]);
  outcome = {.steps = result.progress.global_step,
             .samples = result.progress.samples_seen,
             .steps_per_epoch = session.facts().batch.steps_per_epoch,
             .train_size = session.state().dataset_size,
             .seconds = result.seconds,
             .median = steps.empty() ? result.seconds : quantile(steps, 0.5),
             .after_first = ends.back() - ends.front()};
  return kExitOk;
}

const std::map<std::string, std::string> kDemoDefaults{
    {"model", "pyramidnet110"}, {"batch-size", "256"}, {"threads", "1"}, {"lr", "0.1"},
    {"momentum", "0.9"},        {"epochs", "1"}};

RunConfig configure(const DemoFlags& flags, ConfigValues values, const DemoMethod& method) {
  values["spawn"] = {std::to_string(method.processes), "bench demos:0"};
  if (method.devices > 1) values["devices"] = {"cpu:0,cpu:1", "bench demos:0"};
  std::map<std::string, std::string> defaults = kDemoDefaults;
  if (flags.limit_steps > 0) {
    defaults.erase("epochs");
    values["steps"] = {std::to_string(flags.limit_steps + 1),
                       "--limit-steps"};  // plus the first step, which is not counted
  }
  return resolve_bench(values, defaults, kTrainingImages);
}

DemoRow to_row(const DemoFlags& flags, const DemoMethod& method, const DemoOutcome& o,
               std::int64_t batch) {
  const std::int64_t expected = (o.train_size - 1) / batch + 1;
  const std::int64_t to_run = flags.limit_steps > 0 ? flags.limit_steps + 1 : expected;
  if (o.steps_per_epoch != expected || o.steps != to_run ||
      (flags.limit_steps == 0 && o.samples != o.train_size))
    throw engine::Error("internal: method " + std::string(method.name) + " ran " +
                        std::to_string(o.steps) + " iterations over " + std::to_string(o.samples) +
                        " samples, expected " + std::to_string(to_run) + " of " +
                        std::to_string(expected) + " over " + std::to_string(o.train_size));
  DemoRow row{.method = method.name,
              .processes = method.processes,
              .devices = method.devices,
              .iterations = expected};
  row.measured = flags.limit_steps > 0 ? flags.limit_steps : expected;
  row.epoch_s = flags.limit_steps > 0 ? o.after_first / static_cast<double>(flags.limit_steps) *
                                            static_cast<double>(expected)
                                      : o.seconds;
  row.batch_s = o.median;
  row.rate = static_cast<double>(o.train_size) / row.epoch_s;
  return row;
}

// Without CIFAR-10, chooses samples of its shape, which the report mentions. Returns a description
// of the data.
std::string choose_data(ConfigValues& values) {
  const auto given = values.find("dataset");
  if (given != values.end() && given->second.value != "cifar10") return given->second.value;
  const bool asked = given != values.end() || values.contains("data-dir");
  const auto folder = values.find("data-dir");
  const std::string directory = folder == values.end() ? "data/cifar10" : folder->second.value;
  try {
    io::DatasetOptions options;
    options.name = "cifar10";
    options.directory = directory;
    static_cast<void>(io::load_dataset(options));
    values["dataset"] = {"cifar10", "bench demos:0"};
    return "CIFAR-10 from " + directory;
  } catch (const io::MissingFileError&) {
    if (asked) throw;
    for (const auto& [name, value] : {std::pair{"dataset", "synthetic"},
                                      {"synthetic-shape", "32x32x3"},
                                      {"synthetic-classes", "10"}})
      values[name] = {value, "bench demos:0"};
    return "synthetic images of CIFAR-10's shape (no CIFAR-10 in " + directory +
           ": tools/scripts/get_data.sh, or --data-dir)";
  }
}

}  // namespace

int bench_demos_command(const Arguments& arguments) {
  CLI::App app(
      "Trains an epoch with the same global batch, four times: single (one process), v1 (one "
      "process, two devices), v2 (two processes), v3 (three processes with two devices each). "
      "Accepts the options of engine train; the default is pyramidnet110 with 256 images, which "
      "need about 10 GB.",
      "engine bench demos");
  DemoFlags flags;
  ConfigValues values;
  app.add_option("--limit-steps", flags.limit_steps, "measure N iterations and extrapolate")
      ->transform(whole_number(1, kMaxCount));
  add_format_option(app, flags.format);
  add_train_options(app, values,
                    {"epochs", "steps", "spawn", "devices", "rank", "world-size", "local-rank",
                     "init-method", "backend", "batch-size-per-device"});
  app.footer(own_defaults_text(kDemoDefaults));
  if (!parse(app, arguments)) return kExitOk;
  apply_environment(values);
  const std::string data = choose_data(values);
  const BenchHeading heading = bench_heading();  // taken before this program adds to the load
  std::vector<DemoRow> rows;
  std::int64_t batch = 0;
  std::string model;
  for (const DemoMethod& method : kDemoMethods) {
    const RunConfig config = configure(flags, values, method);
    std::fprintf(stderr, "bench demos: %s, processes x devices: %d x %d\n", method.name,
                 method.processes, method.devices);
    const SharedValue<DemoOutcome> outcome;
    const int code = run_group(config, [&](backends::Group& group) {
      return train_rank(config, group, flags.limit_steps, *outcome);
    });
    if (code != kExitOk) return code;
    batch = config.data.sampling.global_batch;
    model = config.model.name;
    rows.push_back(to_row(flags, method, *outcome, batch));
  }
  const std::string about = model + " on " + data + ", " + std::to_string(rows.front().iterations) +
                            " iterations per epoch with every method";
  const std::string text = demos_text(heading, about, batch, rows, flags.format);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kExitOk;
}

}  // namespace tools
