// Creates folder, trace, session and records of a rank, in the order of their dependencies.
#include "tools/run/rank/rank_run.h"

#include <sys/resource.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <utility>

#include "backends/backend_error.h"
#include "backends/open_files.h"
#include "engine/core/cuda.h"
#include "io/base/files/io_error.h"
#include "io/base/files/system_error_text.h"
#include "io/base/time/deadline.h"
#include "tools/launch/group/membership_text.h"
#include "tools/launch/workers/stop_signals.h"
#include "tools/report/observers/console_observer.h"
#include "tools/report/observers/metrics_observer.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/run/choices/compute_choice.h"
#include "tools/run/session/run_views.h"
#include "tools/run/session/run_watches.h"

namespace tools {
namespace {

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code unknown;
  return std::filesystem::weakly_canonical(a, unknown) ==
         std::filesystem::weakly_canonical(b, unknown);
}

// Returns the number of files that training will open in addition to those open now.
int files_of_records(const RunConfig& config) {
  // A checkpoint and status.json: each a file, its folder, and what io::AtomicFile asks for its
  // mode. A server: a listener and clients.
  constexpr int kAtomicFiles = 6, kServer = 4;
  const bool events = config.tensorboard.in_run_folder || !config.tensorboard.folder.empty();
  const int writers = 1 + (config.metrics.empty() ? 0 : 1) + (events ? 1 : 0);
  return kAtomicFiles + writers + (config.prometheus ? kServer : 0);
}

// Fails before training starts, not at the first checkpoint.
void check_limits(const RunConfig& config, const std::string& folder, std::int64_t parameters) {
  backends::require_files(files_of_records(config), "the run's folder on rank 0");
  const auto bytes = static_cast<rlim_t>(parameters) * sizeof(float);
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
    throw io::CannotCreateError("cannot save in folder " + folder +
                                ": a checkpoint takes more than " + std::to_string(bytes) +
                                " bytes: " + base::system_error_text(EFBIG));
}

}  // namespace

RankRun::RankRun(RankRunOptions options, backends::Group& group,
                 std::unique_ptr<backends::Communicator> control)
    : sync_(choose_sync(options.config, group, options.data)),
      options_{sync_.config, std::move(options.command), options.stop_signal,
               sync_.data,   options.generation,         std::move(options.on_folder)},
      group_(group),
      run_(options_.config, options_.command, group, *control,
           retained() == nullptr ? nullptr : &retained()->run) {
  if (is_root() && !folder().empty() && options_.on_folder) options_.on_folder(folder());
  const NvtxTool& tool = nvtx_tool();
  if (is_root() && !tool.missing.empty()) print_notice(tool.missing);
  if (!options_.config.trace.path.empty())
    make_trace();
  else if (tool.ranges != nullptr)
    ranges_.emplace(*tool.ranges);
  group.set_activity("loading the data");
  SessionOptions session = run_.session_options();
  if (options_.data) session.data.given = options_.data;
  session_ = std::make_unique<TrainSession>(session, group, std::move(control),
                                            retained() == nullptr ? nullptr : &retained()->state);
}

RankRun::~RankRun() {
  if (started_ && retained() != nullptr) retained()->since = base::steady_seconds();
}

void RankRun::make_trace() {
  const RunConfig& config = options_.config;
  trace_communicator_ = host_communicator(group_);
  trace_.emplace(
      TraceOptions{.path = config.trace.path,
                   .first_step = config.trace.first_step,
                   .last_step = config.trace.last_step,
                   .may_use_device = config.compute.device.device.kind != DeviceName::Kind::kCpu &&
                                     engine::cuda::missing().empty()},
      group_, *trace_communicator_);
}

const SessionFacts& RankRun::start() {
  group_.set_activity("loading the state");
  const SessionFacts& facts = session_->start_state();
  if (retained() != nullptr && retained()->begin == 0) retained()->begin = base::steady_seconds();
  started_ = true;
  if (is_root()) {
    if (!folder().empty()) check_limits(options_.config, folder(), facts.model.parameters);
    auto observer = std::make_unique<LastSave>();
    last_save_ = observer.get();
    add_observer(std::move(observer));
  }
  if (!trace_) return facts;
  if (facts.ranks.on_device()) trace_->follow_device(engine::cuda::current_device());
  add_observer(trace_->make_observer());
  trace_->after_step(session_->state().progress.global_step);
  return facts;
}

void RankRun::begin() {
  run_.begin(*session_, session_->state().progress.global_step);
  if (is_root()) add_watches(run_, *session_);
}

void RankRun::add_metrics() {
  const std::string& chosen = options_.config.metrics;
  io::MetricsFiles files;
  if (!folder().empty()) files.of_run = folder() + "/metrics.jsonl";
  if (files.of_run.empty() || !is_same_file(files.of_run, chosen)) files.chosen = chosen;
  if (files.of_run.empty() && files.chosen.empty()) return;
  auto observer = std::make_unique<MetricsObserver>(files, options_.config.log_gpu);
  const engine::TrainProgress& progress = session_->state().progress;
  if (session_->facts().is_carried_over()) {
    const backends::View& view = options_.generation->view;
    observer->writer().membership(progress.global_step, progress.epoch,
                                  {.generation = view.generation,
                                   .ranks = view.world_size,
                                   .left = process_texts(view.left),
                                   .joined = process_texts(view.joined),
                                   .seconds = base::steady_seconds() - retained()->since});
  } else {
    observer->writer().start(progress.global_step, progress.epoch, run_.record().id,
                             run_record_json(run_.record(), /*one_line=*/true));
  }
  add_observer(std::move(observer));
}

void RankRun::add_records(PrometheusPage* page) {
  if (is_root()) {
    add_metrics();
    add_exporters({options_.config, run_, group_, options_.generation != nullptr}, *session_, page);
  }
  add_observer(make_desync_observer(group_.rank(), group_.world_size()));
}

void RankRun::add_status() {
  if (!is_root() || (folder().empty() && group_.world_size() == 1)) return;
  const engine::TrainProgress& progress = session_->state().progress;
  const LengthFacts& length = session_->facts().length;
  RunStatus begin;
  begin.run = run_.record().id;
  begin.model = run_.record().model;
  begin.dataset = run_.record().data.name;
  begin.progress = {.step = progress.global_step,
                    .steps = length.total_steps,
                    .epoch = progress.epoch + 1,
                    .epochs = length.epochs};
  auto observer = make_status_observer({.folder = folder(),
                                        .begin = std::move(begin),
                                        .unit = progress_unit(session_->data().train()),
                                        .elastic = options_.generation != nullptr,
                                        .check = [this] { run_.check_folder(); }},
                                       group_);
  status_ = observer.get();
  add_observer(std::move(observer));
}

engine::TrainResult RankRun::train() {
  const ElasticGeneration* const generation = options_.generation;
  try {
    if (generation == nullptr) return session_->run(options_.stop_signal);
    return session_->run(options_.stop_signal, {.pause = generation->pause,
                                                .leave = is_asked_to_leave,
                                                .min_ranks = options_.config.min_ranks,
                                                .leave_signal = kLeaveSignal});
  } catch (const std::exception& error) {
    explain(error);
    throw;
  }
}

void RankRun::explain(const std::exception& error) {
  const bool goes_on =
      options_.generation != nullptr && dynamic_cast<const backends::PeerError*>(&error) != nullptr;
  if (status_ != nullptr && !goes_on) status_->on_failure(text_of(error));
  const bool diverged = dynamic_cast<const engine::NonFiniteError*>(&error) != nullptr;
  if (diverged && last_save_ != nullptr && last_save_->path().empty()) run_.take_back();
}

void RankRun::finish_trace(const engine::TrainResult& result) {
  // After an interruption the other ranks no longer take part.
  if (trace_ && result.interrupted.empty()) trace_->finish(session_->state().progress.global_step);
}

std::string RankRun::save_rank_model() {
  if (!options_.config.save_rank_models) return "";
  return session_->checkpoints().save_rank_model(session_->state());
}

}  // namespace tools
