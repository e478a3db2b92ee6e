// Implements `engine bench`, which selects the benchmark, and `engine bench step`, which measures
// the time of a training step by phase.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "io/base/formats/json_writer.h"
#include "tools/bench/commands/bench_commands.h"
#include "tools/bench/step/bench_step.h"
#include "tools/commands/command.h"
#include "tools/launch/group/run_group.h"
#include "tools/options/table/value_check.h"
#include "tools/options/table/value_text.h"
#include "tools/report/output/exit_codes.h"

namespace tools {
namespace {

struct StepFlags {
  ReportFormat format = ReportFormat::kTable;
  int batch = 100, ranks = 0;
  StepBench bench;
};

std::string step_json(const StepFlags& flags, const RunConfig& config, const BenchHeading& heading,
                      const StepTimes& times, const std::vector<PhaseRow>& rows) {
  const PhaseRow& step = rows[5];  // rank 0's step
  const auto ranks = static_cast<std::int64_t>(times.ranks.size());
  base::JsonWriter json;
  begin_report(json, "bench step", heading);
  json.member("model", config.model.name).member("batch_per_rank", times.global_batch / ranks);
  json.member("global_batch", times.global_batch).member("ranks", ranks);
  json.member("threads", config.compute.threads).member("backend", times.backend);
  json.member("steps", times.ranks.front().size()).member("warmup", flags.bench.warmup);
  json.member("step_ms", step.p50_ms).member("step_ms_min", step.min_ms);
  json.member("step_ms_p99", step.p99_ms).member("samples_per_s", times.rate());
  json.key("rows").begin_array();
  for (const PhaseRow& row : rows) {
    json.begin_object().member("rank", row.rank).member("phase", row.phase);
    json.member("min_ms", row.min_ms).member("p50_ms", row.p50_ms).member("p99_ms", row.p99_ms);
    json.end_object();
  }
  return json.end_array().end_object().text() + "\n";
}

std::string step_text(const StepFlags& flags, const RunConfig& config, const StepTimes& times) {
  const std::vector<PhaseRow> rows = summarize(times);
  const BenchHeading heading = bench_heading();
  if (flags.format == ReportFormat::kJson) return step_json(flags, config, heading, times, rows);
  const bool people = flags.format != ReportFormat::kCsv;
  std::vector<Cells> lines{people ? Cells{"rank", "phase", "min ms", "median ms", "p99 ms", "share"}
                                  : Cells{"rank", "phase", "min_ms", "p50_ms", "p99_ms", "share"}};
  for (const PhaseRow& row : rows)
    lines.push_back({std::to_string(row.rank), row.phase, fixed(row.min_ms, 3),
                     fixed(row.p50_ms, 3), fixed(row.p99_ms, 3),
                     people ? fixed(100 * row.share, 1) + " %" : fixed(row.share, 5)});
  return report_text(
      flags.format, heading_text(heading) + times.start_line + "\n", lines, {1},
      std::to_string(times.ranks.front().size()) +
          " steps: " + fixed(times.rate(), times.rate() < 100 ? 2 : 0) +
          " samples/s at the median step of rank 0. communication: time waiting for averaging that "
          "backward does not hide.\n");
}

int bench_step_command(const Arguments& arguments) {
  CLI::App app(
      "Measures whole training steps and where their time goes. Accepts the options of engine "
      "train; "
      "without --dataset a "
      "batch of synthetic samples in memory.",
      "engine bench step");
  StepFlags flags;
  ConfigValues values;
  add_train_options(app, values, {"epochs", "steps"});
  app.footer(own_defaults_text(step_defaults("batch-size-per-device", flags.batch)));
  app.add_option("--batch", flags.batch, "samples per step and rank (--batch-size: over all ranks)")
      ->transform(whole_number(1))
      ->excludes("--batch-size")
      ->excludes("--batch-size-per-device")
      ->capture_default_str();
  app.add_option("--ranks", flags.ranks, "ranks to start on this machine, like --spawn")
      ->transform(whole_number(1, 1024))
      ->excludes("--spawn");
  add_step_options(app, flags.bench, "how long to measure");
  add_format_option(app, flags.format, {"table", "text", "json", "csv", "md"});
  if (!parse(app, arguments)) return kExitOk;
  if (flags.ranks > 0) values["spawn"] = {std::to_string(flags.ranks), "--ranks"};
  if (app.count("--batch") > 0)
    values["batch-size-per-device"] = {std::to_string(flags.batch), "--batch"};
  const RunConfig config =
      resolve_bench(values, step_defaults("batch-size-per-device", flags.batch));
  return run_group(config, [&](backends::Group& group) {
    const StepTimes times = measure_steps(config, flags.bench, group);
    if (group.rank() == 0) {
      const std::string text = step_text(flags, config, times);
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    }
    return kExitOk;
  });
}

}  // namespace

int bench_command(const Arguments& arguments) {
  const std::string what = arguments.empty() ? "" : arguments.front();
  const Arguments rest(arguments.empty() ? arguments.end() : arguments.begin() + 1,
                       arguments.end());
  if (what == "comm") return bench_comm_command(rest);
  if (what == "link") return bench_link_command(rest);
  if (what == "step") return bench_step_command(rest);
  if (what == "scaling") return bench_scaling_command(rest);
  if (what == "kernels") return bench_kernels_command(rest);
  if (what == "demos") return bench_demos_command(rest);
  if (what == "save") return bench_save_command(rest);
  if (what == "io") return bench_io_command(rest);
  if (what == "verify") return bench_verify_command(rest);
  CLI::App app(
      "Measures: step (training steps and their phases), scaling (steps for several numbers of "
      "ranks and backends), demos (one process, several devices, several processes, both), comm "
      "(collectives), link (rate and delay between ranks), kernels (single operators), save "
      "(checkpoints), io (data and checkpoints, "
      "and the disk), verify (comparing files). The options of each: engine bench WHAT --help.",
      "engine bench");
  std::string word;
  app.add_option("WHAT", word, "what to measure")
      ->required()
      ->check(CLI::IsMember(
          {"step", "scaling", "demos", "comm", "link", "kernels", "save", "io", "verify"}))
      ->type_name("step|scaling|demos|comm|link|kernels|save|io|verify");
  app.allow_extras();
  if (!parse(app, arguments)) return kExitOk;
  throw UsageError(
      "engine bench: expected step, scaling, demos, comm, link, kernels, save, io or verify");
}

}  // namespace tools
