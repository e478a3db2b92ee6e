// The file of a file:// rendezvous: rank 0's address and the secret of this run. Works on NFS: the
// file is created atomically by link or rename, without locks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "backends/store/tcp_socket.h"

namespace backends {

struct Rendezvous {
  Endpoint endpoint;
  std::string nonce;       // identifies the run; part of the job id in the handshake
  std::string secret_hex;  // "": the secret comes from elsewhere, and is not copied into a file
  int pid = 0;             // rank 0's; with start time and host it shows if the run is dead
  std::uint64_t start_time = 0;
  std::string host, host_id;
};

std::string rendezvous_text(const Rendezvous& rendezvous);  // the file's content
// Empty if there is no file or it is not a rendezvous file (`reason` distinguishes the two). Throws
// AuthenticationError if other users may read or write it.
[[nodiscard]] std::optional<Rendezvous> read_rendezvous(const std::string& path,
                                                        std::string& reason);
// Returns the error for a rank that finds no secret there and was given none.
std::string absent_secret_text(const std::string& path);
// Returns true if its rank 0 certainly no longer runs (same host, no such process).
[[nodiscard]] bool is_certainly_dead(const Rendezvous& rendezvous);

// Creates the file, and removes it on destruction unless another run has replaced it.
class RendezvousFile {
 public:
  // Replaces the file of a run that has ended, with a notice; throws PeerError if that run is still
  // running according to `is_running`.
  RendezvousFile(std::string path, const Rendezvous& rendezvous,
                 const std::function<bool(const Rendezvous&)>& is_running,
                 const std::function<void(const std::string&)>& notice);
  ~RendezvousFile();
  RendezvousFile(const RendezvousFile&) = delete;
  RendezvousFile& operator=(const RendezvousFile&) = delete;

  // Writes the file again, with a notice, if it was removed: the ranks that have not read it need
  // it. Throws PeerError if another run has replaced it, ConfigurationError if it cannot be
  // written, and the errors of read_rendezvous().
  void ensure_published(const std::function<void(const std::string&)>& notice) const;

 private:
  std::string path_, nonce_, text_;
  int owner_pid_;
};

}  // namespace backends
