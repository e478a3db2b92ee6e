// Directs the streams of one worker to the terminal, to files, or both, and makes its folder of
// logs.
#pragma once

#include <string>
#include <vector>

#include "tools/launch/nodes/launch_options.h"
#include "tools/launch/nodes/launch_plan.h"
#include "tools/launch/workers/output_relay.h"

namespace tools {

class WorkerLogs {
 public:
  // Checks -r, -t and --local-ranks-filter. Throws io::ConfigError.
  WorkerLogs(const LaunchOptions& options, const LaunchPlan& plan);

  bool keeps_files() const { return keeps_; }
  std::string folder(int attempt, int rank) const;  // DIR/ID/ATTEMPT/RANK
  void make_folder(int attempt, int rank) const;    // throws io::CannotCreateError

  // One end belongs to the worker, the other to the relay.
  struct Stream {
    backends::Socket worker_end;       // becomes the worker's stdout or stderr
    RelayedStream* relayed = nullptr;  // nullptr: the worker writes to the file itself
    std::string file;                  // "": none
  };
  // `target` 1: stdout, 2: stderr. Throws io::CannotCreateError, std::runtime_error.
  Stream open(OutputRelay& relay, int attempt, int local_rank, int target) const;

 private:
  const LaunchPlan& plan_;
  std::string base_;
  std::vector<unsigned> redirected_, teed_;
  std::vector<bool> shown_;
  bool keeps_ = false;
  bool color_[2];
};

}  // namespace tools
