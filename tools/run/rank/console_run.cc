// Implements start lines, observers for the console, and exit codes.
#include "tools/run/rank/console_run.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "io/base/time/deadline.h"
#include "tools/launch/group/membership_text.h"
#include "tools/launch/group/requeue.h"
#include "tools/report/observers/console_observer.h"
#include "tools/report/output/build_info.h"
#include "tools/report/output/console_output.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/report/output/shell_text.h"
#include "tools/report/output/standard_output.h"
#include "tools/report/text/session_text.h"
#include "tools/run/choices/compute_choice.h"
#include "tools/run/session/run_views.h"

namespace tools {
namespace {

bool prints_lines(const RunConfig& config, int rank) {
  return config.console.all_ranks ||
         std::ranges::find(config.console.ranks, rank) != config.console.ranks.end();
}

// Returns true on a terminal that shows lines of text.
bool shows_bar(const RunConfig& config) {
  return config.console.progress != RunConfig::Progress::kNever && !config.console.log.quiet &&
         config.console.log.format == LogFormat::kText && isatty(STDOUT_FILENO) == 1;
}

// Sets up the log of the calling thread.
void configure_logging(const RunConfig& config, const backends::Group& group) {
  const int rank = group.rank();
  for (const int named : config.console.ranks)
    if (named >= group.world_size() && !config.is_elastic())
      throw io::ConfigError("--log-ranks names rank " + std::to_string(named) +
                            ", but ranks go from 0 to " + std::to_string(group.world_size() - 1));
  const bool speaks = prints_lines(config, rank);
  log_context() = {.rank = rank, .named = speaks && rank != 0, .silent = !speaks};
  if (speaks && !config.console.file.empty()) open_log_file(config.console.file);
  if (rank == 0 && speaks && config.console.progress == RunConfig::Progress::kRich &&
      shows_bar(config) && !shows_utf8())
    print_notice(
        "--progress rich needs a UTF-8 locale (LC_ALL, LC_CTYPE, LANG): a bar without the "
        "curve is shown");
}

// The page for Prometheus on rank 0, opened before anything that takes long; null: none.
class RunPage {
 public:
  RunPage(const RunConfig& config, const backends::Group& group, backends::Communicator& control,
          RetainedRun* retained)
      : page_(retained == nullptr ? own_ : retained->page) {
    open_page(config, group, control, retained != nullptr && retained->run.under_way, page_);
  }
  PrometheusPage* get() const { return page_.get(); }

 private:
  std::unique_ptr<PrometheusPage> own_;
  std::unique_ptr<PrometheusPage>& page_;  // own_, or the page kept across groups
};

// Returns the command that continues a job of ranks with --rank, which is the user's on each of
// them; "" for other jobs. `saved` is the file that was saved last.
std::string command_on_each_rank(const RunConfig& config, const std::string& saved) {
  if (!config.identity.rank || config.identity.world_size.value_or(1) < 2) return "";
  const auto folder = config.origin.find("save-dir");
  const bool resumed = folder != config.origin.end() && folder->second.source == "--resume";
  if (resumed) return "the same command";
  if (config.keeping.directory != "auto") return "the same command with --resume auto";
  return "the same command with --save-dir " +
         shell_word(std::filesystem::path(saved).parent_path().string()) + " --resume auto";
}

class ConsoleRun {
 public:
  ConsoleRun(const RankRunOptions& options, backends::Group& group,
             std::unique_ptr<backends::Communicator> control, PrometheusPage* page)
      : config_(options.config),
        generation_(options.generation),
        group_(group),
        page_(page),
        run_(options, group, std::move(control)),
        facts_(run_.start()) {}

  std::optional<int> run() {
    print_start();
    engine::TrainResult result;
    // A state from a rank's memory may still have to be evaluated and saved.
    if (!facts_.is_complete() || facts_.is_carried_over())
      result = train();
    else if (run_.is_root())
      log_info(completion_text(facts_));
    run_.finish_trace(result);
    return end(result);
  }

 private:
  bool speaks() const { return prints_lines(config_, group_.rank()); }

  void print_start() const {
    const bool root = run_.is_root();
    if (!root && !speaks()) return;
    if (facts_.is_carried_over())
      print_membership();
    else
      log_info(base::escape_text(start_line(facts_, ENGINE_VERSION) + " | " + state_text(facts_)),
               "start");
    if (root && !facts_.ranks.processors.empty()) print_notice(facts_.ranks.processors);
    if (root && !facts_.is_carried_over() && !facts_.ranks.translation.empty())
      print_notice(facts_.ranks.translation);
    check_standard_output();  // fail before training starts, not hours later
  }

  void print_membership() const {
    const std::string scale = scale_text(facts_);
    log_info("membership: " + membership_text(generation_->view) + "; on from step " +
             std::to_string(facts_.start.step) + " after " +
             base::number_text("%.2f", base::steady_seconds() - generation_->retained.since) +
             " s" + (scale.empty() ? "" : "; " + scale));
  }

  // Prints details that do not fit the start line.
  void print_details() const {
    for (const std::string& warning : data_warnings(facts_)) print_notice("warning: " + warning);
    for (const std::string& line : detail_lines(facts_)) log_info(line);
    for (const std::string& line : run_.sync_lines()) log_info(line, "sync");
    for (const std::string& line : averaging_lines(facts_)) log_info(line);
    if (config_.keeping.directory.empty())
      print_notice("nothing will be saved: give --save-dir DIR to keep the model");
  }

  void add_console() {
    const bool root = run_.is_root();
    if (!root && !speaks()) return;
    run_.add_observer(make_console_observer(
        {.steps_per_epoch = facts_.batch.steps_per_epoch,
         .total_steps = facts_.length.total_steps,
         .epochs = facts_.length.epochs,
         .progress_bar = root && speaks() && shows_bar(config_),
         .rich = config_.console.progress == RunConfig::Progress::kRich && shows_utf8(),
         .color = wants_colour(STDOUT_FILENO),
         .verbose = config_.console.verbose,
         .equal_work = config_.data.shares.are_equal() && config_.data.local_steps.are_equal(),
         .unit = progress_unit(run_.session().data().train()),
         .min_interval = std::chrono::seconds(config_.log_every ? 0 : 1),
         .seconds_before =
             generation_ == nullptr ? 0 : base::steady_seconds() - generation_->retained.begin}));
  }

  engine::TrainResult train() {
    run_.begin();
    if (run_.is_root() && !facts_.is_carried_over()) print_details();
    add_console();
    run_.add_records(page_);
    run_.add_status();
    return run_.train();
  }

  std::optional<int> end(const engine::TrainResult& result) {
    if (result.leaves) {
      print_notice("left the job after step " + std::to_string(result.progress.global_step) +
                   ", as asked; the others continue");
      return kExitLeft;
    }
    if (result.paused) return std::nullopt;
    const std::string model = run_.save_rank_model();
    if (run_.is_root() && !model.empty())
      log_info("Saved each rank's model: " + base::escape_text(model) +
               (group_.world_size() > 1 ? " and its siblings" : ""));
    return result.signal == 0 ? kExitOk : stopped(result);
  }

  int stopped(const engine::TrainResult& result) const {
    const bool preempted =
        std::ranges::find(config_.preempt_signals, result.signal) != config_.preempt_signals.end();
    if (run_.is_root())
      print_notice(stop_text(result, preempted, run_.last_save(),
                             command_on_each_rank(config_, run_.last_save().path())));
    if (!preempted) return 128 + result.signal;
    if (run_.is_root() && config_.requeue) requeue_job();
    return kExitPreempted;
  }

  const RunConfig& config_;
  const ElasticGeneration* const generation_;
  backends::Group& group_;
  PrometheusPage* const page_;
  RankRun run_;
  const SessionFacts& facts_;
};

}  // namespace

std::optional<int> run_on_console(const RankRunOptions& options, backends::Group& group) {
  const RunConfig& config = options.config;
  const ConsoleThreads console(options.stop_signal);
  configure_logging(config, group);
  std::unique_ptr<backends::Communicator> control = host_communicator(group);
  const RunPage page(config, group, *control,
                     options.generation == nullptr ? nullptr : &options.generation->retained);
  // The other ranks wait for this, which may take long.
  if (!config.keeping.directory.empty())
    group.set_activity("taking the folder " + config.keeping.directory);
  RankRunOptions own = options;
  own.on_folder = [](const std::string& folder) { keep_log(folder + "/log.txt"); };
  return ConsoleRun(own, group, std::move(control), page.get()).run();
}

}  // namespace tools
