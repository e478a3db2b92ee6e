// Defines the options for evaluation, output and preemption: --eval-every to --requeue.
#include "tools/options/table/option_rows.h"

#include <algorithm>
#include <csignal>

#include "io/base/text/text_parts.h"

namespace tools {
namespace {

using enum OptionSpec::Agreement;
using enum OptionSpec::OnResume;
using enum OptionSpec::Arrays;

constexpr const char* kNoTensorboard =
    "--tensorboard or --tensorboard-dir DIR: TensorBoard shows them";
constexpr const char* kTextConsole =
    "a console with lines of text: no --quiet, and --log-format text";

std::optional<ValueFault> take_log_interval(RunConfig& config, const std::string& text) {
  config.log_every.reset();
  if (text == "auto") return std::nullopt;
  config.log_every = parse_integer(text);
  if (config.log_every && *config.log_every >= 0 && *config.log_every <= kMaxCount)
    return std::nullopt;
  return ValueFault{"auto, or an integer from 0 to " + std::to_string(kMaxCount)};
}

std::optional<ValueFault> take_prometheus(RunConfig& config, const std::string& text) {
  config.prometheus = parse_listen_address(text);
  if (config.prometheus) return std::nullopt;
  return ValueFault{
      "a port of this host for itself, as 9400, or an IP address and a port, as 0.0.0.0:9400 or "
      "[::1]:9400"};
}

std::optional<ValueFault> take_trace(RunConfig& config, const std::string& text) {
  config.trace.path = text;
  if (text.ends_with(".json") || text.ends_with(".json.gz")) return std::nullopt;
  return ValueFault{"a file that ends in .json or .json.gz"};
}

std::optional<ValueFault> take_trace_steps(RunConfig& config, const std::string& text) {
  const std::vector<std::string> parts = base::split_text(text, ':');
  const auto first = parse_integer(parts.front()), last = parse_integer(parts.back());
  if (parts.size() != 2 || !first || !last || *first < 1 || *last < *first || *last > kMaxCount)
    return ValueFault{"two steps, counted from 1, as 100:150"};
  config.trace.first_step = *first;
  config.trace.last_step = *last;
  return std::nullopt;
}

std::optional<ValueFault> take_log_ranks(RunConfig& config, const std::string& text) {
  config.console.all_ranks = text == "all";
  if (config.console.all_ranks) return std::nullopt;
  config.console.ranks.clear();
  for (const std::string& rank : base::split_text(text, ',')) {
    const auto number = parse_integer(rank);
    if (!number || *number < 0 || *number > 1'000'000)
      return ValueFault{"all, or numbers of ranks from 0, as 0,2"};
    config.console.ranks.push_back(static_cast<int>(*number));
  }
  return std::nullopt;
}

std::optional<ValueFault> take_signals(RunConfig& config, const std::string& text) {
  constexpr std::pair<std::string_view, int> kSignals[] = {
      {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"XCPU", SIGXCPU}, {"TERM", SIGTERM}, {"INT", SIGINT}};
  for (const std::string& part : base::split_text(text, ',')) {
    const std::string name = part.starts_with("SIG") ? part.substr(3) : part;
    const auto found = std::ranges::find(kSignals, name, &std::pair<std::string_view, int>::first);
    if (found == std::end(kSignals))
      return ValueFault{"signals of USR1, USR2, XCPU, TERM and INT, e.g. USR1,TERM"};
    config.preempt_signals.push_back(found->second);
  }
  return std::nullopt;
}

const std::vector<OptionSpec> kReportRows{
    {.name = "eval-every",
     .field = interval([](RunConfig& c) { return &c.evaluate; }),
     .metavar = "N[e|s]",
     .initial = "1e",
     .help = "evaluate every N epochs or steps, and at the end (0: never)",
     .example = "--eval-every 500s"},
    {.name = "log-every",
     .field = parsed(take_log_interval),
     .metavar = "auto|N",
     .initial = "auto",
     .help = "report every N steps (0: never; auto: often enough for a curve)",
     .example = "--log-every 10"},
    {.name = "on-nonfinite",
     .field = choice([](RunConfig& c) { return &c.on_nonfinite; },
                     {{"abort", engine::OnNonFinite::kAbort},
                      {"skip", engine::OnNonFinite::kSkip},
                      {"continue", engine::OnNonFinite::kContinue}}),
     .help = "on NaN or infinity: exit with 79, skip the update, or warn and continue",
     .example = "--on-nonfinite skip",
     .demands = {{is("skip"),
                  {off("compress")},
                  "--compress none: what compression keeps back from a step that is skipped "
                  "would spoil those after it"}}},
    {.name = "flight-dir",
     .field = text([](RunConfig& c) { return &c.flight_dir; }),
     .metavar = "DIR",
     .help = "folder for flight records (default: --save-dir, else the temporary folder)",
     .example = "--flight-dir /scratch/flight",
     .agreement = kFree,
     .on_resume = kOneStart,
     .names_path = true},
    {.name = "metrics",
     .field = text([](RunConfig& c) { return &c.metrics; }),
     .metavar = "F.jsonl",
     .help = "write metrics as JSON lines",
     .example = "--metrics metrics.jsonl",
     .agreement = kFree,
     .on_resume = kOneStart,
     .names_path = true},
    {.name = "log-gpu",
     .field = integer([](RunConfig& c) { return &c.log_gpu; }, 0, kMaxCount),
     .help = "write GPU utilization, memory and power to --metrics every N steps (0: never)",
     .example = "--save-dir run --log-gpu 100",
     .agreement = kFree,
     .on_resume = kOneStart,
     .demands = {{on(),
                  {given("metrics"), given("save-dir"), given("tensorboard-dir")},
                  "--save-dir or --metrics FILE: samples go to the metrics"}}},
    {.name = "tensorboard",
     .field = flag([](RunConfig& c) { return &c.tensorboard.in_run_folder; }),
     .help = "write event files for TensorBoard, to --save-dir/tensorboard",
     .example = "--save-dir run --tensorboard",
     .agreement = kFree,
     .on_resume = kOneStart,
     .demands = {{on(),
                  {given("tensorboard-dir"), given("save-dir")},
                  "--save-dir, or --tensorboard-dir DIR instead: a folder to write to"}}},
    {.name = "tensorboard-dir",
     .field = text([](RunConfig& c) { return &c.tensorboard.folder; }),
     .metavar = "DIR",
     .help = "write event files for TensorBoard to this folder",
     .example = "--tensorboard-dir runs/tensorboard",
     .agreement = kFree,
     .on_resume = kOneStart,
     .names_path = true},
    {.name = "histograms",
     .field = integer([](RunConfig& c) { return &c.tensorboard.histogram_every; }, 0, kMaxCount),
     .help = "every N steps, write histograms of parameters and gradients for TensorBoard (0: "
             "never)",
     .example = "--save-dir run --tensorboard --histograms 500",
     .agreement = kFree,
     .on_resume = kOneStart,
     .demands = {{on(), {on("tensorboard"), given("tensorboard-dir")}, kNoTensorboard}}},
    {.name = "tensorboard-samples",
     .field = integer([](RunConfig& c) { return &c.tensorboard.samples; }, 0, 1000),
     .help = "with each evaluation, write N test samples and what the model says of them for "
             "TensorBoard (0: none)",
     .example = "--save-dir run --tensorboard --tensorboard-samples 16",
     .agreement = kFree,
     .on_resume = kOneStart,
     .needs = {is("task", "classification")},
     .demands = {{on(), {on("tensorboard"), given("tensorboard-dir")}, kNoTensorboard}}},
    {.name = "prometheus",
     .field = parsed(take_prometheus),
     .metavar = "[ADDR:]PORT",
     .help = "serve http://ADDR:PORT/metrics on rank 0's host (default ADDR: 127.0.0.1)",
     .example = "--prometheus 9400",
     .agreement = kFree,
     .on_resume = kOneStart},
    {.name = "trace",
     .field = parsed(take_trace),
     .metavar = "F.json[.gz]",
     .help = "write a trace of all ranks, for https://ui.perfetto.dev",
     .example = "--trace trace.json.gz",
     .agreement = kPresence,
     .on_resume = kOneStart,
     .demands = {{given(), {off("elastic")}, "that ranks stay: one of --elastic has no trace"}},
     .names_path = true},
    {.name = "trace-steps",
     .field = parsed(take_trace_steps),
     .metavar = "A:B",
     .help = "--trace: only steps A to B, from 1 (default: all; the latest are kept)",
     .example = "--trace trace.json --trace-steps 100:150",
     .on_resume = kOneStart,
     .needs = {given("trace")}},
    {.name = "progress",
     .field = choice([](RunConfig& c) { return &c.console.progress; },
                     {{"auto", RunConfig::Progress::kAuto},
                      {"rich", RunConfig::Progress::kRich},
                      {"never", RunConfig::Progress::kNever}}),
     .help = "progress bar on a terminal; rich: with a curve of the loss",
     .example = "--progress rich",
     .agreement = kFree,
     .on_resume = kOneStart,
     .demands = {{is("rich"), {off("quiet")}, kTextConsole},
                 {is("rich"), {is("log-format", "text")}, kTextConsole}}},
    {.name = "quiet",
     .field = flag([](RunConfig& c) { return &c.console.log.quiet; }),
     .help = "print warnings and errors only; log files still contain all lines",
     .example = "--quiet --save-dir run",
     .agreement = kFree,
     .on_resume = kOneStart,
     .demands = {{on(), {off("verbose")}, "that --verbose is not given: it asks for more lines"}}},
    {.name = "verbose",
     .field = flag([](RunConfig& c) { return &c.console.verbose; }),
     .help = "print with each report where the time of a step went",
     .example = "--verbose --log-every 50",
     .agreement = kFree,
     .on_resume = kOneStart},
    {.name = "log-file",
     .field = text([](RunConfig& c) { return &c.console.file; }),
     .metavar = "FILE",
     .help = "also append the printed lines to this file",
     .example = "--log-file train.log",
     .agreement = kFree,
     .on_resume = kOneStart,
     .names_path = true},
    {.name = "log-format",
     .field = choice([](RunConfig& c) { return &c.console.log.format; },
                     {{"text", LogFormat::kText}, {"json", LogFormat::kJson}}),
     .help = "json: each line is a JSON object, also in --log-file",
     .example = "--log-format json",
     .agreement = kFree,
     .on_resume = kOneStart},
    {.name = "log-time",
     .field = flag([](RunConfig& c) { return &c.console.log.time; }),
     .help = "begin each line on the console with the time (UTC)",
     .example = "--log-time --spawn 2",
     .agreement = kFree,
     .on_resume = kOneStart},
    {.name = "log-ranks",
     .field = parsed(take_log_ranks),
     .metavar = "all|LIST",
     .initial = "0",
     .help = "ranks whose output is shown, e.g. 0,2; warnings always are",
     .example = "--spawn 2 --log-ranks all",
     .agreement = kFree,
     .on_resume = kOneStart}};

const std::vector<OptionSpec> kPreemptRows{
    {.name = "preempt-signal",
     .field = parsed(take_signals),
     .metavar = "LIST",
     .initial = "USR1",
     .help = "preemption signals, e.g. USR1,TERM: finish the step, save, exit with 75",
     .example = "--save-dir run --preempt-signal USR1,TERM",
     .needs = {given("save-dir")}},
    {.name = "requeue",
     .field = flag([](RunConfig& c) { return &c.requeue; }),
     .help = "after preemption, requeue the SLURM job",
     .example = "--save-dir run --requeue",
     .on_resume = kOneStart,
     .needs = {given("save-dir")}}};

}  // namespace

OptionGroup report_rows() { return {"report", kReportRows}; }

OptionGroup preempt_rows() { return {"preempt", kPreemptRows}; }

}  // namespace tools
