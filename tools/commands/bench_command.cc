// `engine bench`: selects the benchmark; and `engine bench step`: the time of a training step, by
// phase.
#include <cstdio>

#include "io/base/text_format.h"
#include "tools/bench/step/bench_step.h"
#include "tools/commands/command.h"
#include "tools/group/run_group.h"
#include "tools/report/exit_codes.h"

namespace tools {
namespace {

struct StepFlags {
  std::string format = "table";
  int batch = 100, ranks = 0;
  StepBench bench;
};

std::string step_json(const StepFlags& flags, const tools::RunConfig& config,
                      const BenchHeading& heading, const StepTimes& times,
                      const std::vector<PhaseRow>& rows) {
  const PhaseRow& step = rows[5];  // of rank 0
  const auto ranks = static_cast<std::int64_t>(times.ranks.size());
  std::string text = "{\"schema\":1,\"command\":\"bench step\"," + heading_json(heading) +
                     ",\"model\":" + io::json_string(config.model) +
                     ",\"batch_per_rank\":" + std::to_string(times.global_batch / ranks) +
                     ",\"global_batch\":" + std::to_string(times.global_batch) +
                     ",\"ranks\":" + std::to_string(ranks) +
                     ",\"threads\":" + std::to_string(config.threads) +
                     ",\"backend\":" + io::json_string(times.backend) +
                     ",\"steps\":" + std::to_string(times.ranks.front().size()) +
                     ",\"warmup\":" + std::to_string(flags.bench.warmup) +
                     ",\"step_ms\":" + io::shortest_text(step.p50_ms) +
                     ",\"step_ms_min\":" + io::shortest_text(step.min_ms) +
                     ",\"step_ms_p99\":" + io::shortest_text(step.p99_ms) +
                     ",\"samples_per_s\":" + io::shortest_text(times.rate()) + ",\"rows\":[";
  for (const PhaseRow& row : rows)
    text += std::string(&row == rows.data() ? "" : ",") + "{\"rank\":" + std::to_string(row.rank) +
            ",\"phase\":" + io::json_string(row.phase) +
            ",\"min_ms\":" + io::shortest_text(row.min_ms) +
            ",\"p50_ms\":" + io::shortest_text(row.p50_ms) +
            ",\"p99_ms\":" + io::shortest_text(row.p99_ms) + "}";
  return text + "]}\n";
}

std::string step_text(const StepFlags& flags, const tools::RunConfig& config,
                      const StepTimes& times) {
  const std::vector<PhaseRow> rows = summarize(times);
  const BenchHeading heading = bench_heading();
  if (flags.format == "json") return step_json(flags, config, heading, times, rows);
  const bool people = flags.format != "csv", markdown = flags.format == "md";
  std::vector<Cells> lines{people ? Cells{"rank", "phase", "min ms", "median ms", "p99 ms", "share"}
                                  : Cells{"rank", "phase", "min_ms", "p50_ms", "p99_ms", "share"}};
  for (const PhaseRow& row : rows)
    lines.push_back({std::to_string(row.rank), row.phase, fixed(row.min_ms, 3),
                     fixed(row.p50_ms, 3), fixed(row.p99_ms, 3),
                     people ? fixed(100 * row.share, 1) + " %" : fixed(row.share, 5)});
  if (!people) return csv_text(lines);
  const std::string gap = markdown ? "\n" : "";
  return heading_text(heading) + times.start_line + "\n" + gap + table_text(lines, {1}, markdown) +
         gap + std::to_string(times.ranks.front().size()) +
         " steps: " + fixed(times.rate(), times.rate() < 100 ? 2 : 0) +
         " samples/s at the median step of rank 0. communication: time waiting for averaging that "
         "backward does not hide.\n";
}

int bench_step_command(const Arguments& arguments) {
  CLI::App app(
      "Measures whole training steps and where their time goes. Accepts the options of engine "
      "train; "
      "without --dataset a "
      "batch of synthetic samples in memory.",
      "engine bench step");
  StepFlags flags;
  tools::ConfigValues values;
  add_train_options(app, values, {"epochs", "steps"});
  app.add_option("--batch", flags.batch,
                 "samples per step and rank (or --batch-size: over all ranks)")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--ranks", flags.ranks, "ranks to start on this machine, like --spawn")
      ->check(CLI::PositiveNumber);
  app.add_option("--seconds", flags.bench.seconds, "how long to measure")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--steps", flags.bench.steps, "number of steps to measure, instead of --seconds")
      ->check(CLI::PositiveNumber);
  app.add_option("--warmup", flags.bench.warmup, "warm-up steps")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--format", flags.format, "table, json, csv or md")
      ->check(CLI::IsMember({"table", "text", "json", "csv", "md"}))
      ->capture_default_str();
  if (!parse(app, arguments)) return kExitOk;
  if (flags.ranks > 0) values["spawn"] = {std::to_string(flags.ranks), "--ranks"};
  const tools::RunConfig config =
      resolve_bench(values, {{"model", "convnet"},
                             {"batch-size-per-device", std::to_string(flags.batch)},
                             {"threads", "1"},
                             {"shuffle", "false"},
                             {"workers", "0"},
                             {"lr", "0.01"},
                             {"momentum", "0.9"}});
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
  if (what == "step") return bench_step_command(rest);
  if (what == "scaling") return bench_scaling_command(rest);
  if (what == "kernels") return bench_kernels_command(rest);
  if (what == "demos") return bench_demos_command(rest);
  CLI::App app(
      "Measures: step (training steps and where their time goes), scaling (steps for several "
      "numbers of ranks and backends), demos (one "
      "process, several devices, several processes, both), comm (collectives), kernels (single "
      "operators). engine bench WHAT "
      "--help",
      "engine bench");
  std::string word;
  app.add_option("WHAT", word, "what to measure")
      ->required()
      ->check(CLI::IsMember({"step", "scaling", "demos", "comm", "kernels"}))
      ->type_name("step|scaling|demos|comm|kernels");
  app.allow_extras();
  if (!parse(app, arguments)) return kExitOk;
  throw UsageError("engine bench: expected step, scaling, demos, comm or kernels");
}

}  // namespace tools
