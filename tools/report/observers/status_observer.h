// Updates status.json of the run's folder, and observers of the group, on rank 0 for `engine top`.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backends/group.h"
#include "engine/train/train_observer.h"
#include "tools/report/observers/run_status.h"
#include "tools/report/text/progress_line.h"

namespace tools {

struct StatusOptions {
  std::string folder;  // the run's folder; "": none
  RunStatus begin;     // constant values: run, model, data set, steps, epochs
  ProgressUnit unit;
  bool elastic = false;         // another group continues if this one fails
  std::function<void()> check;  // throws if the folder now belongs to another job; any thread
};

// Publishes the status about once a second in its own thread, so also while the training waits for
// a rank, and at the end. A file that cannot be written is reported once, and retried. The group
// outlives it.
class StatusObserver : public engine::TrainObserver {
 public:
  virtual void on_failure(const std::string& cause) = 0;  // the training ends with this error
};
std::unique_ptr<StatusObserver> make_status_observer(StatusOptions options, backends::Group& group);

}  // namespace tools
