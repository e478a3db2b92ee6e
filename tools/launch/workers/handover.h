// What the launcher prepares for the rendezvous of its workers: the socket on which rank 0 listens,
// and the job's secret.
#pragma once

#include <string>

#include "backends/store/tcp_socket.h"
#include "tools/launch/workers/guard_process.h"

namespace tools {

inline constexpr const char* kListenFdVariable = "ENGINE_LISTEN_FD";

// In a worker: the listening socket that the launcher has handed over in ENGINE_LISTEN_FD, -1
// without. The variable is removed and the descriptor closes on exec from now on. Throws
// backends::ConfigurationError when it is no listening socket on `port` (0: any).
int take_listen_fd(int port);

// Keeps a TCP port for a program that will bind it itself: bound but not listening, with
// SO_REUSEADDR, so that the kernel gives the port to nobody who asks for any, while a program that
// names it (with SO_REUSEADDR, as all do that serve) may listen. Port 0: any free one. Throws
// backends::PeerError.
backends::Socket reserve_port(const backends::Endpoint& endpoint);

// A private file that holds the secret of one job; removed with the object, and by the guard if
// this process is killed.
class SecretFile {
 public:
  // `hex` "": a fresh one. Throws io::CannotCreateError.
  SecretFile(GuardProcess& guard, const std::string& hex);
  ~SecretFile();
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tools
