// Implements observers that end a run or print a notice.
#include "tools/run/session/run_watches.h"

#include <memory>
#include <string>
#include <utility>

#include "tools/report/output/run_log.h"
#include "tools/report/output/standard_output.h"

namespace tools {
namespace {

// Ends the training if another job has taken its folder.
class FolderWatch : public engine::TrainObserver {
 public:
  explicit FolderWatch(const TrainingRun& run) : run_(run) {}
  void on_step(const engine::TrainProgress&) override { run_.check_folder(); }

 private:
  const TrainingRun& run_;
};

// Handles a lost console (a full disk, a reader that has left). The run's folder has the lines in
// log.txt; without a folder the run would have no result.
class OutputWatch : public engine::TrainObserver {
 public:
  explicit OutputWatch(std::string folder) : folder_(std::move(folder)) {}
  void on_report(const engine::StepReport&) override {
    if (reported_ || !standard_output_failed()) return;
    if (folder_.empty()) check_standard_output();
    reported_ = true;
    print_notice("standard output cannot be written; the run continues, see " + folder_ +
                 "/log.txt");
  }

 private:
  const std::string folder_;
  bool reported_ = false;
};

// The start line announces that steps will be captured; a failure of the capture is known only some
// steps later.
class CaptureWatch : public engine::TrainObserver {
 public:
  explicit CaptureWatch(const TrainSession& session) : session_(session) {}
  void on_step(const engine::TrainProgress&) override {
    if (reported_) return;
    const std::string failure = session_.capture_failure();
    if (failure.empty()) return;
    reported_ = true;
    print_notice("warning: steps on the device are " + failure);
  }

 private:
  const TrainSession& session_;
  bool reported_ = false;
};

}  // namespace

void add_watches(const TrainingRun& run, TrainSession& session) {
  session.add_observer(std::make_unique<OutputWatch>(run.folder()));
  session.add_observer(std::make_unique<FolderWatch>(run));
  if (session.facts().ranks.on_device())
    session.add_observer(std::make_unique<CaptureWatch>(session));
}

}  // namespace tools
