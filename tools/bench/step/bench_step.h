// Measures whole training steps as `engine train` runs them, and the time of their phases, for
// `engine bench step`, `scaling` and `demos`.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backends/group.h"
#include "engine/train/step/step_phases.h"
#include "tools/bench/bench_report.h"
#include "tools/options/input/command_line.h"
#include "tools/options/table/run_config.h"

namespace CLI {
class App;
}

namespace tools {

// Adds all options of `engine train` except those in `without` and those that a benchmark rejects.
void add_train_options(CLI::App& app, ConfigValues& values,
                       const std::vector<std::string>& without = {});

// Returns the last paragraph of a benchmark's help: the values that are not those of engine train.
std::string own_defaults_text(const std::map<std::string, std::string>& defaults);

// Resolves the configuration of a benchmark from the user's values: the command line, then ENGINE_*
// variables, then `defaults`, then data with the shape that the model was made for. A data set made
// for it has one global batch, or `synthetic_size` samples.
RunConfig resolve_bench(ConfigValues values, const std::map<std::string, std::string>& defaults,
                        std::int64_t synthetic_size = 0);

struct StepBench {
  int warmup = 3;          // steps before the measurement
  double seconds = 5;      // measuring time, by rank 0's clock
  std::int64_t steps = 0;  // > 0: run exactly this many steps instead
};

// Adds --seconds (`help` of it), --steps and --warmup.
void add_step_options(CLI::App& app, StepBench& bench, const char* help);
// Returns the defaults of step and scaling: a small model, with `batch` as the option of that name.
std::map<std::string, std::string> step_defaults(const char* batch_option, int batch);

struct StepTimes {
  std::string start_line, backend;
  std::int64_t global_batch = 0;
  std::vector<std::vector<engine::StepPhases>> ranks;  // by rank, by step

  // Samples per second of the whole group, at the median of rank 0's steps.
  double rate() const;
};

// Collective over the group; every rank gets all times.
StepTimes measure_steps(const RunConfig& config, const StepBench& bench, backends::Group& group);

struct PhaseRow {
  int rank = 0;
  std::string phase;  // data, forward, backward, communication, update; step: all of them
  double min_ms = 0, p50_ms = 0, p99_ms = 0;
  double share = 0;  // fraction of the median step
};
// Returns six rows per rank. Each phase has its own statistics: medians need not add up to the
// median step.
std::vector<PhaseRow> summarize(const StepTimes& times);
// Returns the q-quantile (0 to 1) of values, by rank, not interpolated.
double quantile(std::vector<double> values, double q);

// One line of `engine bench scaling`.
struct ScalingRow {
  std::string backend;
  int ranks = 1;
  std::int64_t global_batch = 0;
  double rate = 0;           // samples/s
  double speedup = 0;        // multiple of the rate of one rank
  double communication = 0;  // fraction of rank 0's time
};
struct LeftOutBackend {
  std::string name, reason;
};
std::string scaling_text(const BenchHeading& heading, const std::string& mode,
                         const std::string& model, const std::vector<ScalingRow>& rows,
                         const std::vector<LeftOutBackend>& left_out, ReportFormat format);

// One line of `engine bench demos`.
struct DemoRow {
  std::string method;
  int processes = 1, devices = 1;
  std::int64_t iterations = 0;  // per epoch
  std::int64_t measured = 0;    // measured iterations; fewer than all: times are extrapolated
  double epoch_s = 0, batch_s = 0, rate = 0;
};
// Returns "2:34", "~2:34" for an extrapolated time, or "1.04s".
std::string epoch_text(const DemoRow& row);
std::string batch_text(double seconds);
std::string demos_text(const BenchHeading& heading, const std::string& about,
                       std::int64_t global_batch, const std::vector<DemoRow>& rows,
                       ReportFormat format);

}  // namespace tools
