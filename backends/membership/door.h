// Where newcomers find an elastic job: an address that one process of its host serves, or a file
// that names a process.
#pragma once

#include <optional>
#include <string>

#include "backends/group.h"
#include "backends/identity/rendezvous_file.h"
#include "backends/store/secret.h"
#include "backends/store/tcp_socket.h"

namespace backends {

class Door {
 public:
  // Of tcp://HOST:PORT or file:///PATH; waits until the host's name can be resolved. Throws
  // ConfigurationError, PeerError at the rendezvous timeout, CancelledError.
  explicit Door(const GroupOptions& options);

  bool is_file() const { return !path_.empty(); }
  // Listens where those that come through the door can reach this process; never on the door's own
  // port, which the kernel may choose while nobody serves it.
  Socket listen_beside() const;
  // Where newcomers call now; none is known: there is no file yet.
  std::optional<Endpoint> find() const;
  // The job's secret; that of the file, which is made if there is none yet, where no other is
  // given.
  Secret secret(const Endpoint& agent);

  // tcp: listens there. Empty if another process does, or it is no address of this host.
  Socket serve();
  // file: makes it name this process, if it does not exist or certainly names a dead one of this
  // host. Whether it does.
  bool take(const Endpoint& agent);
  void show(const Endpoint& agent);  // file: makes it name this process
  void remove();                     // file: if it names this process

 private:
  void resolve_name(const GroupOptions& options);
  bool publish(const Endpoint& agent, Publish how);

  const std::string explicit_secret_, host_id_;
  std::string path_, nonce_, secret_hex_, own_address_;
  Endpoint endpoint_;
  bool is_of_other_host_ = false;
};

}  // namespace backends
