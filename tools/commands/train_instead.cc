// Implements the dry run and the learning rate range test.
#include "tools/commands/train_instead.h"

#include <CLI/CLI.hpp>
#include <csignal>
#include <iostream>
#include <limits>

#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "tools/folder/output_paths.h"
#include "tools/launch/group/group_flags.h"
#include "tools/launch/group/run_group.h"
#include "tools/launch/workers/stop_signals.h"
#include "tools/options/input/command_line.h"
#include "tools/report/output/build_info.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/report/output/standard_output.h"
#include "tools/report/text/session_text.h"
#include "tools/run/choices/rate_choice.h"
#include "tools/run/session/dry_run.h"
#include "tools/run/session/lr_range_test.h"
#include "tools/run/session/sync_auto.h"
#include "tools/run/session/train_session.h"

namespace tools {
namespace {

// Runs everything up to the first step, and keeps nothing: it creates neither the run's folder nor
// staged copies. Rank 0 prints the result.
int dry_run(const RunConfig& given, backends::Group& group) {
  const ChosenSync chosen = choose_sync(given, group);
  const RunConfig& config = chosen.config;
  SessionOptions options = config;
  options.data.given = chosen.data;
  options.data.stage.clear();
  options.keeping.only_planned = !options.keeping.directory.empty();
  options.keeping.directory.clear();
  options.keeping.resume = {};
  const TrainSession session(options, group);
  const std::vector<RankMemory> memory = session.gather_memory();
  if (group.rank() != 0) return kExitOk;
  const SessionFacts& facts = session.facts();
  std::string text = base::escape_text(start_line(facts, ENGINE_VERSION)) + "\n";
  for (const auto& lines : {detail_lines(facts), chosen.lines, averaging_lines(facts)})
    for (const std::string& line : lines) text += line + "\n";
  text +=
      "\nModel (of one sample; MFLOP: millions of floating-point operations of forward's "
      "products)\n" +
      model_table(session.graph()) + "\nMemory (MiB)\n" + memory_table(memory) + "\nOptions\n" +
      option_table_text(config.origin);
  for (const std::string& warning : data_warnings(facts)) print_notice("warning: " + warning);
  std::cout << text << "\nA dry run: nothing was trained or written.\n" << std::flush;
  check_standard_output();
  return kExitOk;
}

std::string finding_text(const RateFinding& found, const LrRangeTest& test, const RateRange& range,
                         double scale, bool diverged) {
  const auto rate = [](double value) { return base::number_text("%.3g", value); };
  const std::string end = diverged && !test.points().empty()
                              ? "; it diverges at " + rate(test.points().back().rate)
                              : "";
  if (!found.steepest)
    return "No suggestion: the loss does not fall between " + rate(range.lowest) + " and " +
           rate(range.highest) + end + "\n";
  return "The loss falls fastest at lr " + rate(*found.steepest) + " and is lowest at " +
         rate(*found.lowest) + end + "\nSuggestion: --lr " + rate(*found.steepest / scale) + "\n";
}

// Runs a range test. Weights, statistics and optimizer state are discarded afterwards.
int find_lr(const RunConfig& given, const RateRange& range, backends::Group& group,
            const std::atomic<int>& stop_signal) {
  const ChosenSync chosen = choose_sync(given, group);
  const RunConfig& config = chosen.config;
  const bool root = group.rank() == 0;
  std::unique_ptr<io::MetricsWriter> writer;
  if (root && !config.metrics.empty())
    writer = std::make_unique<io::MetricsWriter>(config.metrics, io::MetricsWriter::Clock{},
                                                 print_notice);
  SessionOptions options = of_rate_test(config, range);
  options.data.given = chosen.data;
  TrainSession session(options, group);
  const SessionFacts& facts = session.start_state();
  if (root)
    log_info(base::escape_text(start_line(facts, ENGINE_VERSION) + " | " + state_text(facts)));
  if (const std::string line = frozen_line(facts); root && !line.empty()) log_info(line);
  for (const std::string& line : chosen.lines)
    if (root) log_info(line, "sync");
  std::atomic<int> stop{0};
  auto observer = std::make_unique<LrRangeTest>(stop_signal, stop, writer.get());
  const LrRangeTest& test = *observer;
  session.add_observer(std::move(observer));
  const engine::TrainResult result = session.run(stop);
  const bool diverged = result.signal == LrRangeTest::kDiverged;
  if (result.signal != 0 && !diverged) {
    if (root)
      print_notice("stopped by signal " + std::to_string(result.signal) +
                   " before the end of the range: no suggestion");
    return 128 + result.signal;
  }
  if (!root) return kExitOk;
  const RateFinding found = find_rate(test.points());
  const double scale = scaled_rate(1, config.update, group.world_size(), config.data.max_ranks),
               nothing = std::numeric_limits<double>::quiet_NaN(),
               steepest = found.steepest.value_or(nothing);
  if (writer)
    writer->lr_find(result.progress.global_step, result.progress.epoch_of_step(), steepest / scale,
                    steepest, found.lowest.value_or(nothing));
  std::cout << rate_table(test.points(), found) << finding_text(found, test, range, scale, diverged)
            << std::flush;
  check_standard_output();
  return kExitOk;
}

int find_lr(const Instead& instead, const RunConfig& config) {
  const RateRange range = parse_rate_range(instead.rates, config.steps);
  if (config.keeping.resume.is_wanted())
    throw io::ConfigError(
        "--lr-find begins with fresh weights or those of --init-from: leave "
        "--resume " +
        config.keeping.resume.text() + " out");
  if (config.is_elastic())
    throw io::ConfigError("--lr-find needs ranks that stay: leave --elastic out");
  if (has_rank_zero(config)) check_output_path("metrics", config.metrics, "");
  const std::vector<int> signals(std::begin(kSaveSignals), std::end(kSaveSignals));
  const std::atomic<int>& stop_signal = install_stop_signals(signals);
  return run_group(
      config, [&](backends::Group& group) { return find_lr(config, range, group, stop_signal); });
}

}  // namespace

void add_instead(CLI::App& app, Instead& instead) {
  app.add_flag("--print-config", instead.print_config,
               "print all options as a file for --config, and exit")
      ->group("before");
  app.add_flag("--dry-run", instead.dry_run,
               "print the model, memory per rank, averaging and all options, and exit")
      ->group("before")
      ->excludes("--print-config");
  app.add_option_function<std::string>(
         "--lr-find",
         [&instead](const std::string& rates) {
           instead.lr_find = true;
           instead.rates = rates == "{}" ? "" : rates;
         },
         "learning-rate range test from MIN to MAX (1e-7:10) over --steps (100) steps: print a "
         "suggestion, and exit")
      ->type_name("[MIN:MAX]")
      ->expected(0, 1)
      ->group("before")
      ->excludes("--print-config")
      ->excludes("--dry-run");
}

std::optional<int> run_instead(const Instead& instead, const RunConfig& config) {
  if (instead.print_config) {
    if (has_rank_zero(config)) std::cout << to_config_file(config.origin) << std::flush;
    check_standard_output();
    return kExitOk;
  }
  if (instead.lr_find) return find_lr(instead, config);
  if (!instead.dry_run) return std::nullopt;
  if (config.is_elastic())
    return run_elastic(
        config, [&](backends::Group& group, const backends::View&, const std::function<bool()>&) {
          return dry_run(config, group);
        });
  return run_group(config, [&](backends::Group& group) { return dry_run(config, group); });
}

}  // namespace tools
