// Defines status.json of a run's folder: the progress of the training and the activity of each
// rank, for `engine top`. Rank 0 writes it about once a second (status_observer.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/group.h"

namespace tools {

struct RunStatus {
  // The process of rank 0. Its space and start time show whether it is gone (host_identity.h).
  struct Process {
    std::string host;
    int pid = 0;
    std::string space;
    std::int64_t start_time = 0;
  };
  struct Progress {
    std::int64_t step = 0, steps = 0, epoch = 0, epochs = 0;  // epoch: the current one, from 1
  };

  std::string run, model, dataset;  // the run's id
  Process process;
  std::int64_t written_us = 0;  // Unix time
  // "completed", "stopped by signal 15", "failed", or "ended without saying so", which a reader
  // finds; none while it trains.
  std::optional<std::string> end;
  std::string cause;  // why it failed; if it did not report that, what is known
  Progress progress;
  std::optional<double> loss, accuracy;  // as last reported
  std::string rate;                      // "5,120 images/s"; "": not known yet
  std::optional<double> seconds_left;
  std::int64_t bytes_sent = 0;  // by each rank, for averaging
  std::string evaluation;       // e.g. "after step 938: loss 0.03, accuracy 99.10 % (991/1000)"
  std::string newest_checkpoint;

  struct Rank {
    backends::RankStatus now;
    std::string host;
    int pid = 0;
  };
  std::vector<Rank> ranks;
};

// "training", or how it ended.
std::string state_text(const RunStatus& status);

std::string run_status_path(const std::string& folder);  // FOLDER/status.json
std::string run_status_json(const RunStatus& status);
// `source`: the file or address, for messages. Throws io::DataError (names source and member).
RunStatus parse_run_status(std::string_view text, const std::string& source);
// Also throws io::MissingFileError. A run whose process is gone, as far as this host can determine,
// has "ended without saying so".
RunStatus read_run_status(const std::string& folder);

}  // namespace tools
