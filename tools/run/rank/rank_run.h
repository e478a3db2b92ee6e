// One rank's training run, from its folder to its end: the same for `engine train`, for elastic
// jobs and for programs that use the library.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/group.h"
#include "backends/membership/membership.h"
#include "tools/report/observers/prometheus_page.h"
#include "tools/report/observers/status_observer.h"
#include "tools/report/text/stop_report.h"
#include "tools/report/trace/nvtx_ranges.h"
#include "tools/report/trace/run_trace.h"
#include "tools/run/session/sync_auto.h"
#include "tools/run/session/train_session.h"
#include "tools/run/session/training_run.h"

namespace tools {

// The data that a process keeps from one group of an elastic job to the next.
struct RetainedRun {
  RetainedState state;
  KeptRun run;
  std::unique_ptr<PrometheusPage> page;  // on rank 0, if it is requested
  double begin = 0;  // steady time in seconds at which this process started to train; 0: not yet
  double since = 0;  // steady time at which the previous group was lost or left
};

// A rank's membership in a group of an elastic job.
struct ElasticGeneration {
  const backends::View& view;
  const std::function<bool()>& pause;  // same as TrainerParts::pause
  RetainedRun& retained;
};

struct RankRunOptions {
  const RunConfig& config;
  std::string command;  // as typed, for the run's record
  const std::atomic<int>& stop_signal;
  std::shared_ptr<LoadedData> data = {};          // null: the data set of the options
  const ElasticGeneration* generation = nullptr;  // null: the job has one group
  // Called with the run's folder, if it has one, on rank 0 before anything is loaded. May be empty.
  std::function<void(const std::string& folder)> on_folder = {};
};

class RankRun {
 public:
  // Collective: --sync auto is decided, rank 0 takes the folder, and all load the data and make
  // the session. Objects that `options` refers to and the group outlive the run. Throws as
  // TrainingRun and TrainSession do.
  RankRun(RankRunOptions options, backends::Group& group,
          std::unique_ptr<backends::Communicator> control);
  ~RankRun();
  RankRun(const RankRun&) = delete;
  RankRun& operator=(const RankRun&) = delete;

  // Call the following in this order. Collective: loads the state.
  const SessionFacts& start();
  // On rank 0: records the start in the folder, and adds watches that may end the run.
  void begin();
  // On rank 0: adds the metrics, event files and `page` (null: none) that the options request; on
  // all ranks, notices of replicas that differ.
  void add_records(PrometheusPage* page);
  // On rank 0: keeps the folder and observers of the job up to date, for `engine top`.
  void add_status();
  void add_observer(std::unique_ptr<engine::TrainObserver> observer) {
    session_->add_observer(std::move(observer));
  }
  // Trains to the end. Observers of the status receive the reason of a failure. Options with which
  // the run diverged before anything was saved do not become the run's options.
  engine::TrainResult train();
  // Collective, after train() or instead of it.
  void finish_trace(const engine::TrainResult& result);
  // Saves this rank's model to a file, with --save-rank-models; returns its path, else "".
  std::string save_rank_model();

  bool is_root() const { return group_.rank() == 0; }
  TrainSession& session() { return *session_; }
  const std::string& folder() const { return run_.folder(); }
  // Describe what --sync auto has chosen; none if it is not asked for.
  const std::vector<std::string>& sync_lines() const { return sync_.lines; }
  // REQUIRES: rank 0, after start().
  const LastSave& last_save() const { return *last_save_; }

 private:
  RetainedRun* retained() const {
    return options_.generation == nullptr ? nullptr : &options_.generation->retained;
  }
  void make_trace();
  void add_metrics();
  void explain(const std::exception& error);

  const ChosenSync sync_;
  const RankRunOptions options_;  // with the configuration of sync_
  backends::Group& group_;
  TrainingRun run_;
  std::unique_ptr<backends::Communicator> trace_communicator_;
  // Made before the session, whose parts they trace; at most one of the two is set.
  std::optional<RunTrace> trace_;
  std::optional<NvtxRanges> ranges_;
  std::unique_ptr<TrainSession> session_;
  bool started_ = false;
  LastSave* last_save_ = nullptr;     // owned by the session; null on ranks other than 0
  StatusObserver* status_ = nullptr;  // owned by the session; null on other ranks, and if no
                                      // observer could see it
};

}  // namespace tools
