// Rank 0's side of `engine top`: keeps status.json of the run's folder, and observers of the group,
// up to date.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backends/group.h"
#include "engine/train/train_observer.h"
#include "tools/report/observers/progress_line.h"
#include "tools/report/observers/run_status.h"

namespace tools {

struct StatusOptions {
  std::string folder;  // the run's; "": none is kept
  RunStatus begin;     // what does not change: run, model, data set, steps, epochs
  ProgressUnit unit;
  bool elastic = false;         // another group goes on where this one fails
  std::function<void()> check;  // throws where the folder is another job's by now; any thread
};

// Tells about once a second in a thread of its own, so also while the training waits for a rank,
// and at the end. A file that cannot be written is told once and tried again. The group outlives
// it.
class StatusObserver : public engine::TrainObserver {
 public:
  virtual void on_failure(const std::string& cause) = 0;  // the training ends with this error
};
std::unique_ptr<StatusObserver> make_status_observer(StatusOptions options, backends::Group& group);

}  // namespace tools
