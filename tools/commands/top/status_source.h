// The source of the status that `engine top` shows: the run's folder, or rank 0 itself.
#pragma once

#include <optional>
#include <string>

#include "backends/store/status_feed.h"
#include "tools/report/observers/run_status.h"

namespace tools {

class StatusSource {
 public:
  // `place`: the run's folder, or the job's rendezvous, "HOST:PORT", "tcp://HOST:PORT" or
  // "file://PATH", to which it connects. Throws as StatusFeed does, and UsageError for any other
  // place.
  explicit StatusSource(const std::string& place);

  // Returns the newest known status, without waiting, except for the first status of a job: while
  // its ranks have not all joined or the training has not started, a notice is printed. Throws
  // PeerError if the job's state is no longer known, io::MissingFileError and io::DataError for a
  // folder.
  RunStatus status();

 private:
  void await_first();

  const std::string place_;
  std::optional<backends::StatusFeed> feed_;  // for a job; else the place is a folder
  std::optional<RunStatus> last_;
};

}  // namespace tools
