// Reads the history of a run from its folder: run.json and metrics.jsonl.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/folder/run_record.h"

namespace tools {

struct RunHistory {
  struct Step {
    double step, time, loss, lr, samples_per_s, accuracy;  // NaN: not told
    double phases[5];  // seconds of a step: data, forward, backward, communication, update
    std::optional<int> slowest_rank;  // none: a single rank
    double slowest_ratio;
  };
  struct Evaluation {
    double step, loss, accuracy, top5, perplexity, mse, mae, r2;
    std::string weights, split;
    bool best;
  };
  struct Averaging {
    double step, spread, bytes_sent;
  };
  struct Gpu {
    double step, utilization;
    std::string device;
  };
  struct Event {
    double step;
    std::string text;
  };

  std::string folder;
  RunRecord record;
  std::vector<Step> steps;
  std::vector<Evaluation> evaluations;
  std::vector<Averaging> averagings;
  std::vector<Gpu> gpus;
  std::vector<Event> events;  // members that joined and left, replicas that differ, NaN
  double last_step = 0, seconds = 0;
  std::optional<int> exit;  // last start; none: it has not ended, or was killed
  std::size_t unreadable_lines = 0;
};

// If a run was resumed from an earlier step, the records of later steps before the resumption are
// omitted. Throws io::MissingFileError and io::DataError like read_run_record(); a folder without
// metrics has none.
RunHistory read_run_history(const std::string& folder);

}  // namespace tools
