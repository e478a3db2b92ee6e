// The file of a file:// rendezvous: where rank 0 listens, and the secret of this run. Works on NFS:
// the file appears whole by link or rename, nothing is locked.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "backends/store/tcp_socket.h"

namespace backends {

struct Meeting {
  Endpoint endpoint;
  std::string nonce;  // names the run; part of the job id of the handshake
  std::string secret_hex;
  int pid = 0;  // of rank 0, with its start time and host to tell a dead run
  std::uint64_t start_time = 0;
  std::string host, host_id;
};

// Empty when there is no file or it is not one of ours (`reason` says which). Throws
// AuthenticationError when others may read or write it.
[[nodiscard]] std::optional<Meeting> read_meeting(const std::string& path, std::string& reason);
// True when its rank 0 certainly no longer runs (same host, no such process).
[[nodiscard]] bool is_certainly_dead(const Meeting& meeting);

// Rank 0's hold on the file: published at construction, removed at destruction if it is still this
// run's.
class MeetingFile {
 public:
  // A file of a run that is gone is replaced, with a notice; one of a run that answers (`answers`)
  // is a PeerError.
  MeetingFile(std::string path, const Meeting& meeting,
              const std::function<bool(const Meeting&)>& answers,
              const std::function<void(const std::string&)>& notice);
  ~MeetingFile();
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;

 private:
  std::string path_, nonce_;
  int owner_pid_;
};

}  // namespace backends
