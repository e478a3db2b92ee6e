// The file of a file:// rendezvous: where rank 0 listens, and the secret of this run. Works on NFS:
// the file appears whole by link or rename, nothing is locked.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "backends/store/tcp_socket.h"

namespace backends {

struct Rendezvous {
  Endpoint endpoint;
  std::string nonce;  // names the run; part of the job id of the handshake
  std::string secret_hex;
  int pid = 0;  // of rank 0, with its start time and host to tell a dead run
  std::uint64_t start_time = 0;
  std::string host, host_id;
};

// Empty when there is no file or it is not one of ours (`reason` says which). Throws
// AuthenticationError when others may read or write it.
[[nodiscard]] std::optional<Rendezvous> read_rendezvous(const std::string& path,
                                                        std::string& reason);
// True when its rank 0 certainly no longer runs (same host, no such process).
[[nodiscard]] bool is_certainly_dead(const Rendezvous& rendezvous);

// Rank 0's hold on the file: published at construction, removed at destruction if it is still this
// run's.
class RendezvousFile {
 public:
  // A file of a run that is gone is replaced, with a notice; one of a run that answers (`answers`)
  // is a PeerError.
  RendezvousFile(std::string path, const Rendezvous& rendezvous,
                 const std::function<bool(const Rendezvous&)>& answers,
                 const std::function<void(const std::string&)>& notice);
  ~RendezvousFile();
  RendezvousFile(const RendezvousFile&) = delete;
  RendezvousFile& operator=(const RendezvousFile&) = delete;

 private:
  std::string path_, nonce_;
  int owner_pid_;
};

}  // namespace backends
