// Formats the messages after a training run was stopped by a signal.
#pragma once

#include <cstdint>
#include <string>

#include "engine/train/train_observer.h"

namespace tools {

// Stores the path of the newest checkpoint.
class LastSave : public engine::TrainObserver {
 public:
  void on_save(const engine::TrainProgress& progress, const std::string& path) override {
    step_ = progress.global_step;
    path_ = path;
  }
  std::int64_t step() const { return step_; }
  const std::string& path() const { return path_; }  // "": nothing was saved

 private:
  std::int64_t step_ = 0;
  std::string path_;
};

// Returns e.g. "stopped by signal 2 (Interrupt) after step 120: saved run/step-120.ckpt; to
// continue: engine train --resume run". REQUIRES: result.signal > 0. `on_each_rank` is the command
// of a job whose ranks are started one by one; "": one command starts them all.
std::string stop_text(const engine::TrainResult& result, bool preempted, const LastSave& last,
                      const std::string& on_each_rank = "");

// Returns e.g. "step-00000400.ckpt is saved in run; to continue: engine train --resume run", for a
// run in `folder` that was ended by a failure. Without a checkpoint, states that --resume starts
// over; "" if the folder has no run, or cannot be read.
std::string continue_text(const std::string& folder);

}  // namespace tools
