// Implements `engine bench scaling`: samples per second over backends and numbers of ranks.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "backends/backend_error.h"
#include "backends/compose/table/backend_table.h"
#include "io/base/text/text_parts.h"
#include "tools/bench/commands/bench_commands.h"
#include "tools/bench/step/bench_step.h"
#include "tools/launch/group/group_flags.h"
#include "tools/launch/group/run_group.h"
#include "tools/options/table/value_check.h"
#include "tools/options/table/value_text.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

struct ScalingFlags {
  std::string backends = "auto", ranks = "1,2", mode = "weak";
  ReportFormat format = ReportFormat::kTable;
  int batch = 100;
  StepBench bench;
};

struct ScalingOutcome {
  char backend[64];
  std::int64_t global_batch;
  double rate, communication;
};

// Measures one group of ranks on this host; returns 0, or the code of the rank that failed.
int measure(const ScalingFlags& flags, const ConfigValues& given, const std::string& backend,
            int ranks, ScalingRow& row) {
  ConfigValues values = given;
  values["spawn"] = {std::to_string(ranks), "--ranks"};
  values["backend"] = {ranks == 1 ? "auto" : backend, "--backends"};
  const char* batch = flags.mode == "weak" ? "batch-size-per-device" : "batch-size";
  const RunConfig config = resolve_bench(values, step_defaults(batch, flags.batch));
  const SharedValue<ScalingOutcome> outcome;
  const int code = run_group(config, [&](backends::Group& group) {
    const StepTimes times = measure_steps(config, flags.bench, group);
    if (group.rank() != 0) return kExitOk;
    double communication = 0, total = 0;
    for (const engine::StepPhases& step : times.ranks.front()) {
      communication += step.communication;
      total += step.total();
    }
    std::strncpy(outcome->backend, times.backend.c_str(), sizeof outcome->backend - 1);
    outcome->global_batch = times.global_batch;
    outcome->rate = times.rate();
    outcome->communication = communication / total;
    return kExitOk;
  });
  row = {outcome->backend, ranks, outcome->global_batch, outcome->rate, 0, outcome->communication};
  return code;
}

// Returns true if all parts of `backend` ("checked:A,B" has two) are backends that some build has.
bool is_known(const std::string& backend) {
  constexpr std::string_view kChecked = "checked:";
  std::string names = backend.starts_with(kChecked) ? backend.substr(kChecked.size()) : backend;
  const std::vector<backends::BackendInfo> all = backends::list_backends();
  return std::ranges::all_of(base::split_text(names, ','), [&](const std::string& name) {
    return std::ranges::any_of(all, [&](const backends::BackendInfo& b) { return b.name == name; });
  });
}

// Returns the backends that this build and machine have, and why the others are missing. Throws for
// a name that no build has.
std::vector<std::string> usable_backends(const std::vector<std::string>& asked,
                                         std::vector<LeftOutBackend>& left_out) {
  std::vector<std::string> usable;
  for (const std::string& name : asked) {
    try {
      backends::check_backend(name);
      usable.push_back(name);
    } catch (const backends::ConfigurationError& error) {
      if (!is_known(name)) throw;
      left_out.push_back({name, error.what()});
      print_notice("left out: " + name + ": " + error.what());
    }
  }
  return usable;
}

void add_flags(CLI::App& app, ScalingFlags& flags) {
  app.add_option("--backends", flags.backends, "comma-separated backends")
      ->type_name("LIST")
      ->capture_default_str();
  app.add_option("--ranks", flags.ranks, "comma-separated numbers of ranks; 1 is always included")
      ->type_name("LIST")
      ->capture_default_str();
  app.add_option("--mode", flags.mode, "--batch is per rank (weak) or over all ranks (strong)")
      ->check(CLI::IsMember({"weak", "strong"}))
      ->capture_default_str();
  app.add_option("--batch", flags.batch, "samples per rank or over all ranks (--mode)")
      ->transform(whole_number(1))
      ->capture_default_str();
  add_step_options(app, flags.bench, "measuring time per row");
  add_format_option(app, flags.format);
}

}  // namespace

int bench_scaling_command(const Arguments& arguments) {
  CLI::App app(
      "Measures training steps for several numbers of ranks on this host and for several backends. "
      "Accepts the "
      "options of engine train.",
      "engine bench scaling");
  ScalingFlags flags;
  ConfigValues values;
  add_flags(app, flags);
  add_train_options(app, values,
                    {"epochs", "steps", "backend", "spawn", "rank", "world-size", "local-rank",
                     "init-method", "batch-size", "batch-size-per-device"});
  app.footer(own_defaults_text(step_defaults("batch", flags.batch)));
  if (!parse(app, arguments)) return kExitOk;
  const std::vector<std::string> backends_asked = split_list(flags.backends, "--backends");
  std::vector<LeftOutBackend> left_out;
  const std::vector<std::string> usable = usable_backends(backends_asked, left_out);
  std::vector<int> counts = rank_counts(flags.ranks);
  std::sort(counts.begin(), counts.end());
  if (flags.mode == "strong" && flags.batch < counts.back())
    throw UsageError("--batch " + std::to_string(flags.batch) + " is smaller than " +
                     std::to_string(counts.back()) + " ranks");
  const BenchHeading heading = bench_heading();  // taken before this program adds to the load
  ScalingRow one;
  if (const int code = measure(flags, values, "auto", 1, one); code != kExitOk) return code;
  one.speedup = 1;
  std::vector<ScalingRow> rows{one};
  for (const std::string& backend : usable)
    for (const int ranks : counts) {
      if (ranks == 1) continue;
      ScalingRow row;
      if (const int code = measure(flags, values, backend, ranks, row); code != kExitOk)
        return code;
      row.speedup = row.rate / one.rate;
      rows.push_back(row);
    }
  const auto model = values.find("model");
  const std::string text =
      scaling_text(heading, flags.mode, model == values.end() ? "convnet" : model->second.value,
                   rows, left_out, flags.format);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kExitOk;
}

}  // namespace tools
