// `engine train`.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "io/base/cpu_affinity.h"
#include "io/base/deadline.h"
#include "io/base/text_parts.h"
#include "io/base/visible_text.h"
#include "models/model_catalog.h"
#include "tools/commands/command.h"
#include "tools/commands/train_instead.h"
#include "tools/group/group_flags.h"
#include "tools/group/joining_options.h"
#include "tools/group/membership_text.h"
#include "tools/group/requeue.h"
#include "tools/group/run_group.h"
#include "tools/options/command_line.h"
#include "tools/report/console_observer.h"
#include "tools/report/console_output.h"
#include "tools/report/exit_codes.h"
#include "tools/report/metrics_observer.h"
#include "tools/report/run_log.h"
#include "tools/report/shell_text.h"
#include "tools/report/standard_output.h"
#include "tools/report/stop_report.h"
#include "tools/run/output_paths.h"
#include "tools/run/run_reference.h"
#include "tools/session/compute_choice.h"
#include "tools/session/run_views.h"
#include "tools/session/run_watches.h"
#include "tools/session/training_run.h"
#include "tools/top/status_observer.h"
#include "tools/trace/run_trace.h"
#include "tools/workers/stop_signals.h"

namespace tools {
namespace {

// "engine train --lr 0.1 --save-dir 'my run'", for people to repeat in a shell.
std::string command_text(const Arguments& arguments) {
  std::string text = "engine train";
  for (const std::string& argument : arguments) text += " " + shell_word(argument);
  return text;
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code unknown;
  return std::filesystem::weakly_canonical(a, unknown) ==
         std::filesystem::weakly_canonical(b, unknown);
}

// What a process keeps from one group of an elastic job to the next.
struct Kept {
  Carried state;
  KeptRun run;
  std::unique_ptr<PrometheusPage> page;  // on rank 0, where one is asked for
  double begin = 0;  // steady seconds at which this process began to train; 0: not yet
  double since = 0;  // and at which the group before was lost or left
};

// The group of an elastic job that a rank is in, and what it keeps for the next one.
struct Turn {
  const backends::View& view;
  const std::function<bool()>& pause;
  Kept& kept;
};

// When it ends, the group is of no use any more.
class GroupTime {
 public:
  explicit GroupTime(const Turn* turn) : turn_(turn) {}
  ~GroupTime() {
    if (turn_ != nullptr) turn_->kept.since = base::steady_seconds();
  }
  GroupTime(const GroupTime&) = delete;
  GroupTime& operator=(const GroupTime&) = delete;

 private:
  const Turn* turn_;
};

// Rank 0 writes the run's metrics into its folder, and where --metrics says.
void add_metrics(const RunConfig& config, const TrainingRun& run, TrainSession& session,
                 const Turn* turn) {
  io::MetricsFiles files;
  if (!run.folder().empty()) files.of_run = run.folder() + "/metrics.jsonl";
  if (files.of_run.empty() || !same_file(files.of_run, config.metrics))
    files.chosen = config.metrics;
  if (files.of_run.empty() && files.chosen.empty()) return;
  auto observer = std::make_unique<MetricsObserver>(files, config.log_gpu);
  const engine::TrainProgress& progress = session.state().progress;
  if (session.carried_over())
    observer->writer().membership(progress.global_step, progress.epoch,
                                  {.generation = turn->view.generation,
                                   .ranks = turn->view.world_size,
                                   .left = process_texts(turn->view.left),
                                   .joined = process_texts(turn->view.joined),
                                   .seconds = base::steady_seconds() - turn->kept.since});
  else
    observer->writer().start(progress.global_step, progress.epoch, run.record().id,
                             run_record_json(run.record(), /*one_line=*/true));
  session.add_observer(std::move(observer));
}

// Rank 0 keeps the run's folder and observers informed for `engine top`. Returns the session's, or
// null where nobody could see it.
StatusObserver* add_status(const TrainingRun& run, TrainSession& session, backends::Group& group,
                           const Turn* turn) {
  if (run.folder().empty() && group.world_size() == 1) return nullptr;
  const engine::TrainProgress& progress = session.state().progress;
  RunStatus begin;
  begin.run = run.record().id;
  begin.model = run.record().model;
  begin.dataset = run.record().data.name;
  begin.step = progress.global_step;
  begin.steps = session.total_steps();
  begin.epoch = progress.epoch + 1;
  begin.epochs = session.epochs();
  auto observer = make_status_observer({.folder = run.folder(),
                                        .begin = std::move(begin),
                                        .unit = progress_unit(session.data().train()),
                                        .elastic = turn != nullptr,
                                        .check = [&run] { run.check_folder(); }},
                                       group);
  StatusObserver* const added = observer.get();
  session.add_observer(std::move(observer));
  return added;
}

bool prints_lines(const RunConfig& config, int rank) {
  return config.log_all_ranks ||
         std::ranges::find(config.log_ranks, rank) != config.log_ranks.end();
}

// On a terminal that shows lines of text.
bool shows_bar(const RunConfig& config) {
  return config.progress != RunConfig::Progress::kNever && !config.log.quiet &&
         config.log.format == LogFormat::kText && isatty(STDOUT_FILENO) == 1;
}

// Who speaks on this thread, and where to.
void begin_to_speak(const RunConfig& config, const backends::Group& group) {
  const int rank = group.rank();
  for (const int named : config.log_ranks)
    if (named >= group.world_size() && !config.is_elastic())
      throw io::ConfigError("--log-ranks names rank " + std::to_string(named) +
                            ", but ranks go from 0 to " + std::to_string(group.world_size() - 1));
  const bool speaks = prints_lines(config, rank);
  speaker() = {.rank = rank, .named = speaks && rank != 0, .silent = !speaks};
  if (speaks && !config.log_file.empty()) open_log_file(config.log_file);
  if (rank == 0 && speaks && config.progress == RunConfig::Progress::kRich && shows_bar(config) &&
      !shows_utf8())
    print_notice(
        "--progress rich needs a UTF-8 locale (LC_ALL, LC_CTYPE, LANG): a bar without the "
        "curve is shown");
}

engine::TrainResult train(const RunConfig& config, TrainingRun& run, TrainSession& session,
                          backends::Group& group, const std::atomic<int>& stop_signal,
                          PrometheusPage* page, StatusObserver*& status, const Turn* turn) {
  run.begin(session, session.state().progress.global_step);
  const bool root = group.rank() == 0, begins = !session.carried_over(),
             speaks = prints_lines(config, group.rank());
  if (root && begins) {
    if (!session.columns_line().empty())
      say(base::visible_text("Columns of " + session.columns_line()));
    for (const std::string& warning : session.data_warnings()) print_notice("warning: " + warning);
    if (const std::string line = session.graph_line(); !line.empty())
      say("Steps on the device: " + line);
    if (const std::string line = session.frozen_line(); !line.empty()) say("Frozen: " + line);
    if (const std::string line = session.sampler_line(); !line.empty()) say("Sampler: " + line);
    for (const std::string& line : session.shard_lines()) say(line);
    for (const std::string& line : session.plan_lines()) say("Averaging: " + line);
    if (config.keeping.directory.empty())
      print_notice("nothing will be saved: give --save-dir DIR to keep the model");
  }
  if (root) add_watches(run, session);
  if (root || speaks)
    session.add_observer(make_console_observer(
        {.steps_per_epoch = session.steps_per_epoch(),
         .total_steps = session.total_steps(),
         .epochs = session.epochs(),
         .progress_bar = root && speaks && shows_bar(config),
         .rich = config.progress == RunConfig::Progress::kRich && shows_utf8(),
         .colour = wants_colour(STDOUT_FILENO),
         .verbose = config.verbose,
         .unit = progress_unit(session.data().train()),
         .min_interval = std::chrono::seconds(config.log_every ? 0 : 1),
         .seconds_before = turn == nullptr ? 0 : base::steady_seconds() - turn->kept.begin}));
  if (root) {
    add_metrics(config, run, session, turn);
    add_views({config, run, group, turn != nullptr}, session, page);
    status = add_status(run, session, group, turn);
  }
  session.add_observer(make_desync_observer(group.rank(), group.world_size()));
  if (turn == nullptr) return session.run(stop_signal);
  return session.run(stop_signal, {.pause = turn->pause,
                                   .leave = is_asked_to_leave,
                                   .least_ranks = config.least_ranks,
                                   .leave_signal = kLeaveSignal});
}

// Observers are told why a training fails. Options with which a run has diverged before anything
// was saved do not become the run's.
engine::TrainResult train_or_explain(const RunConfig& config, TrainingRun& run,
                                     TrainSession& session, backends::Group& group,
                                     const std::atomic<int>& stop_signal, const LastSave* last_save,
                                     PrometheusPage* page, const Turn* turn) {
  StatusObserver* status = nullptr;  // the session's
  try {
    return train(config, run, session, group, stop_signal, page, status, turn);
  } catch (const std::exception& error) {
    const bool goes_on =
        turn != nullptr && dynamic_cast<const backends::PeerError*>(&error) != nullptr;
    if (status != nullptr && !goes_on) status->on_failure(text_of(error));
    const bool diverged = dynamic_cast<const engine::NonFiniteError*>(&error) != nullptr;
    if (diverged && last_save != nullptr && last_save->path().empty()) run.take_back();
    throw;
  }
}

// Nothing: paused. `turn`: null but for an elastic job.
std::optional<int> train_rank(const RunConfig& config, const std::string& command,
                              backends::Group& group, const std::atomic<int>& stop_signal,
                              const Turn* turn) {
  const ConsoleThreads console(stop_signal);
  begin_to_speak(config, group);
  std::unique_ptr<backends::Communicator> control = host_communicator(group);
  std::unique_ptr<PrometheusPage> own_page;
  std::unique_ptr<PrometheusPage>& page = turn == nullptr ? own_page : turn->kept.page;
  open_page(config, group, *control, turn != nullptr && turn->kept.run.under_way, page);
  // What the others are told to wait for, where it takes long.
  if (!config.keeping.directory.empty())
    group.set_activity("taking the folder " + config.keeping.directory);
  TrainingRun run(config, command, group, *control, turn == nullptr ? nullptr : &turn->kept.run);
  const bool root = group.rank() == 0;
  if (root && !run.folder().empty()) keep_log(run.folder() + "/log.txt");
  const std::unique_ptr<backends::Communicator> trace_wire =
      config.trace.empty() ? nullptr : host_communicator(group);
  std::optional<RunTrace> trace;  // before the session, whose parts it traces
  if (trace_wire)
    trace.emplace(TraceOptions{.path = config.trace,
                               .first_step = config.trace_first,
                               .last_step = config.trace_last,
                               .may_use_device = config.compute.device.device != "cpu" &&
                                                 engine::cuda::missing().empty()},
                  group, *trace_wire);
  group.set_activity("loading the data");
  TrainSession session(run.session_options(), group, std::move(control),
                       turn == nullptr ? nullptr : &turn->kept.state);
  group.set_activity("loading the state");
  const std::string start = session.start_state();
  if (turn != nullptr && turn->kept.begin == 0) turn->kept.begin = base::steady_seconds();
  const GroupTime group_time(turn);
  LastSave* last_save = nullptr;  // the session's
  if (root) {
    auto observer = std::make_unique<LastSave>();
    last_save = observer.get();
    session.add_observer(std::move(observer));
  }
  if (root || prints_lines(config, group.rank())) {
    if (session.carried_over())
      say("membership: " + membership_text(turn->view) + "; on from step " +
          std::to_string(session.state().progress.global_step) + " after " +
          base::number_text("%.2f", base::steady_seconds() - turn->kept.since) + " s" +
          (session.scale_line().empty() ? "" : "; " + session.scale_line()));
    else
      say(base::visible_text(session.start_line() + " | " + start), "start");
    if (root && !session.processors_notice().empty()) print_notice(session.processors_notice());
    if (root && !session.carried_over() && !session.device_notice().empty())
      print_notice(session.device_notice());
    check_standard_output();  // better now than after hours
  }
  if (trace && session.on_device()) trace->follow_device(engine::cuda::current_device());
  if (trace) session.add_observer(trace->make_observer());
  if (trace) trace->after_step(session.state().progress.global_step);
  engine::TrainResult result;
  // A state that came from a rank's memory may still have to be evaluated and saved.
  if (const std::string done = session.nothing_left(); done.empty() || session.carried_over())
    result =
        train_or_explain(config, run, session, group, stop_signal, last_save, page.get(), turn);
  else if (root)
    say(done);
  // Otherwise the others do not come any more.
  if (trace && result.interrupted.empty()) trace->finish(session.state().progress.global_step);
  if (result.leaves) {
    print_notice("left the job after step " + std::to_string(result.progress.global_step) +
                 ", as asked; the others go on");
    return kExitLeft;
  }
  if (result.paused) return std::nullopt;
  if (config.save_rank_models) {
    const std::string path = session.keeper().save_rank_model(session.state());
    if (root)
      say("Saved each rank's model: " + base::visible_text(path) +
          (group.world_size() > 1 ? " and its siblings" : ""));
  }
  if (result.signal == 0) return kExitOk;
  const bool preempted =
      std::ranges::find(config.preempt_signals, result.signal) != config.preempt_signals.end();
  if (root) print_notice(stop_text(result, preempted, *last_save));
  if (!preempted) return 128 + result.signal;
  if (root && config.requeue) requeue_job();
  return kExitPreempted;
}

// Whether a rank was lost, and not the run's own end.
bool is_loss(int code) {
  constexpr int kFatal[] = {SIGKILL, SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE};
  return code == kExitUnavailable ||
         std::ranges::any_of(kFatal, [&](int signal) { return code == 128 + signal; });
}

// A launcher restarts the ranks itself.
void print_way_to_continue(const RunConfig& config) {
  if (config.keeping.directory.empty() || config.keeping.directory == "auto" || is_one_of_many())
    return;
  if (const std::string text = continue_text(config.keeping.directory); !text.empty())
    print_notice(text);
}

// Trains on the ranks that this process has to start or to be.
int train_ranks(const RunConfig& config, const std::string& command,
                const std::atomic<int>& stop_signal) {
  try {
    const int code = run_group(config, [&](backends::Group& group) {
      return *train_rank(config, command, group, stop_signal, nullptr);
    });
    if (is_loss(code)) print_way_to_continue(config);
    return code;
  } catch (const backends::PeerError&) {
    if (has_rank_zero(config)) print_way_to_continue(config);
    throw;
  }
}

int train_elastic(const RunConfig& config, const std::string& command,
                  const std::atomic<int>& stop_signal) {
  Kept kept;  // made before the ranks of --spawn are forked, so each has its own
  // Before others wait for this process; those of --spawn share the memory.
  // What --init-from states of the coding is known later.
  if (config.keeping.init_from.empty()) kept.state.data = load_alone(config.data);
  return run_elastic(config, [&](backends::Group& group, const backends::View& view,
                                 const std::function<bool()>& pause) {
    if (view.fresh) {  // others have gone on without this rank
      kept.state.image = {};
      kept.state.writer.reset();
      kept.run = {};
    }
    const Turn turn{view, pause, kept};
    const std::optional<int> code = train_rank(config, command, group, stop_signal, &turn);
    if (code == kExitLeft) {  // another rank saves there from now on
      kept.state.writer.reset();
      kept.run = {};
    }
    return code;
  });
}

}  // namespace

int train_command(const Arguments& arguments) {
  CLI::App app("Trains a model, on one rank or data-parallel on several.", "engine train");
  tools::ConfigValues values;
  std::string config_file;
  add_train_options(app, values, config_file);
  Instead instead;
  add_instead(app, instead);
  app.footer(
      "Every option can also be set as ENGINE_NAME in the environment; precedence: option, "
      "ENGINE_*, config "
      "file, default.\n"
      "Examples:\n"
      "  engine train --model convnet --dataset glyphs --spawn 2 --save-dir run\n"
      "  engine train --model convnet --dataset mnist --data-dir data/mnist --epochs 2 --save-dir "
      "run --resume auto\n"
      "  engine train --model mlp --dataset mnist --data-dir data/mnist --rank 0 --world-size 2 "
      "--init-method tcp://n1:29500");
  if (!parse(app, arguments)) return 0;
  if (app.count("--config") > 0 && config_file.empty()) throw io::ConfigError("--config is empty");
  apply_environment(values);
  if (!config_file.empty()) apply_config_file(config_file, values);
  const std::string definition = take_resumed_run(values);
  apply_defaults(values);
  const std::string spawned = settle_spawn(values);
  RunConfig config = tools::resolve_run_config(values);
  config.model.definition =
      definition.empty() ? models::model_definition(config.model.name) : definition;
  if (config.keeping.resume == "auto" && config.keeping.directory == "auto" && !was_restarted())
    throw io::ConfigError(
        "--resume auto would find nothing, since --save-dir auto makes a new folder: name the "
        "folder, --save-dir DIR");
  if (config.requeue) check_requeue();
  if (!spawned.empty() && !instead.print_config) print_notice(spawned);
  if (const std::optional<int> code = run_instead(instead, config)) return *code;
  check_spawn(config.spawn);
  if (const int cpus = base::count_of_cpus(); config.spawn > cpus)
    print_notice(std::to_string(config.spawn) + " ranks share " + std::to_string(cpus) +
                 (cpus == 1 ? " CPU" : " CPUs") + ": steps are slower than with one rank per CPU");
  if (has_rank_zero(config)) {
    check_output_path("metrics", config.metrics, config.keeping.directory);
    check_output_path("trace", config.trace, config.keeping.directory);
    check_output_path("log-file", config.log_file, config.keeping.directory);
    if (!config.trace.empty()) check_new_file(config.trace, {});
    for (const std::string& other : {config.metrics, config.trace})
      if (!config.log_file.empty() && config.log_file == other)
        throw io::ConfigError("--log-file " + other + ": another output has this name");
    check_views(config, /*joins=*/config.is_elastic() && config.spawn == 0);
  }
  set_log_options(config.log);
  std::vector<int> signals = config.preempt_signals;
  const bool is_elastic = config.is_elastic();
  const bool leaves = is_elastic && std::ranges::find(signals, kLeaveSignal) == signals.end();
  // A scheduler's warning ends the run in order, also if nothing can be saved.
  for (const int signal : kSaveSignals)
    if (!leaves || signal != kLeaveSignal) signals.push_back(signal);
  std::signal(SIGPIPE, SIG_IGN);  // a reader of the output that leaves is a write that fails
  const std::atomic<int>& stop_signal = install_stop_signals(signals);
  if (leaves) install_leave_signal();
  const std::string command = command_text(arguments);
  if (is_elastic) return train_elastic(config, command, stop_signal);
  return train_ranks(config, command, stop_signal);
}

}  // namespace tools
