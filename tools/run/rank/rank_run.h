// One rank's training run, from its folder to its end: the same for `engine train`, for elastic
// jobs and for programs that use the library.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "backends/group.h"
#include "backends/membership/membership.h"
#include "tools/report/observers/prometheus_page.h"
#include "tools/report/observers/status_observer.h"
#include "tools/report/observers/stop_report.h"
#include "tools/report/trace/run_trace.h"
#include "tools/run/session/train_session.h"
#include "tools/run/session/training_run.h"

namespace tools {

// What a process keeps from one group of an elastic job to the next.
struct RetainedRun {
  RetainedState state;
  KeptRun run;
  std::unique_ptr<PrometheusPage> page;  // on rank 0, where one is asked for
  double begin = 0;  // steady seconds at which this process began to train; 0: not yet
  double since = 0;  // and at which the group before was lost or left
};

// The group of an elastic job that a rank is in.
struct GroupTurn {
  const backends::View& view;
  const std::function<bool()>& pause;  // as TrainerParts::pause
  RetainedRun& retained;
};

struct RankRunOptions {
  const RunConfig& config;
  std::string command;  // as typed, for the run's record
  const std::atomic<int>& stop_signal;
  std::shared_ptr<LoadedData> data = {};  // null: the data set of the options
  const GroupTurn* turn = nullptr;        // null: the job has one group
  // Told the run's folder, if it has one, on rank 0 before anything is loaded. May be empty.
  std::function<void(const std::string& folder)> on_folder = {};
};

class RankRun {
 public:
  // Collective: rank 0 takes the folder; all load the data and make the session. What `options`
  // refers to and the group outlive the run. Throws what TrainingRun and TrainSession throw.
  RankRun(RankRunOptions options, backends::Group& group,
          std::unique_ptr<backends::Communicator> control);
  ~RankRun();
  RankRun(const RankRun&) = delete;
  RankRun& operator=(const RankRun&) = delete;

  // In this order. Collective: loads the state.
  const SessionFacts& start();
  // On rank 0: records the start in the folder, and watches what may end the run.
  void begin();
  // On rank 0: the metrics, event files and `page` (null: none) that the options ask for; on all,
  // notices of replicas that differ.
  void add_records(PrometheusPage* page);
  // On rank 0: keeps the folder and observers of the job informed, for `engine top`.
  void add_status();
  void add_observer(std::unique_ptr<engine::TrainObserver> observer) {
    session_->add_observer(std::move(observer));
  }
  // Trains to the end. Observers of the status are told why it fails. Options with which the run
  // has diverged before anything was saved do not become the run's.
  engine::TrainResult train();
  // Collective, after train() or instead of it.
  void finish_trace(const engine::TrainResult& result);
  // This rank's model as a file, with --save-rank-models; returns its path, else "".
  std::string save_rank_model();

  bool is_root() const { return group_.rank() == 0; }
  TrainSession& session() { return *session_; }
  const std::string& folder() const { return run_.folder(); }
  // REQUIRES: rank 0, after start().
  const LastSave& last_save() const { return *last_save_; }

 private:
  RetainedRun* retained() const {
    return options_.turn == nullptr ? nullptr : &options_.turn->retained;
  }
  void make_trace();
  void add_metrics();
  void explain(const std::exception& error);

  const RankRunOptions options_;
  backends::Group& group_;
  TrainingRun run_;
  std::unique_ptr<backends::Communicator> trace_communicator_;
  std::optional<RunTrace> trace_;  // made before the session, whose parts it traces
  std::unique_ptr<TrainSession> session_;
  bool started_ = false;
  LastSave* last_save_ = nullptr;     // the session's; null on other ranks than 0
  StatusObserver* status_ = nullptr;  // likewise; null where nobody could see it, too
};

}  // namespace tools
