// Prepares the rendezvous of the launcher's workers: the socket on which rank 0 listens, and the
// job's secret.
#pragma once

#include <string>

#include "backends/store/tcp_socket.h"
#include "tools/launch/workers/guard_process.h"

namespace tools {

inline constexpr const char* kListenFdVariable = "ENGINE_LISTEN_FD";

// Called in a worker: returns the listening socket that the launcher has passed in
// ENGINE_LISTEN_FD, -1 without one. From then on the variable is removed and the descriptor closes
// on exec. Throws backends::ConfigurationError if it is not a listening socket on `port` (0: any).
int take_listen_fd(int port);

// Reserves a TCP port for a program that will bind it itself: bound but not listening, with
// SO_REUSEADDR. The kernel then does not give the port to programs that ask for any, but a program
// that names it (with SO_REUSEADDR, as servers do) may listen. Port 0: any free one. Throws
// backends::PeerError.
backends::Socket reserve_port(const backends::Endpoint& endpoint);

// A private file with the secret of one job; removed with the object, and by the guard if this
// process is killed.
class SecretFile {
 public:
  // `hex` "": makes a new secret. Throws io::CannotCreateError.
  SecretFile(GuardProcess& guard, const std::string& hex);
  ~SecretFile();
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tools
