// Where `engine top` learns what a training is doing: the run's folder, or rank 0 itself.
#pragma once

#include <optional>
#include <string>

#include "backends/store/status_feed.h"
#include "tools/report/observers/run_status.h"

namespace tools {

class StatusSource {
 public:
  // `place`: the run's folder, or the job's rendezvous, "HOST:PORT", "tcp://HOST:PORT" or
  // "file://PATH", to which it connects. Throws what StatusFeed throws, and UsageError for a place
  // that can be none of these.
  explicit StatusSource(const std::string& place);

  // The newest that is known, without waiting for news, but for the first of a job: while its ranks
  // have not all joined or the training has not begun, a notice says so. Throws PeerError where it
  // is no longer known what the job does, io::MissingFileError and io::DataError of a folder.
  RunStatus status();

 private:
  void await_first();

  const std::string place_;
  std::optional<backends::StatusFeed> feed_;  // of a job; else it is a folder
  std::optional<RunStatus> last_;
};

}  // namespace tools
