// The place at which newcomers find an elastic job: an address that a process serves, or a file
// that names a process.
#pragma once

#include <optional>
#include <string>

#include "backends/group.h"
#include "backends/identity/rendezvous_file.h"
#include "backends/store/private_files.h"
#include "backends/store/tcp_socket.h"

namespace backends {

class JoinEndpoint {
 public:
  // Takes tcp://HOST:PORT or file:///PATH; waits until the host's name can be resolved. Throws
  // ConfigurationError, PeerError at the rendezvous timeout, CancelledError.
  explicit JoinEndpoint(const GroupOptions& options);

  bool is_file() const { return !path_.empty(); }
  // Listens where those that come through the door can reach this process; never on the door's own
  // port, which the kernel may choose while nobody serves it.
  Socket listen_beside() const;
  // The endpoint that joining processes call now; none while there is no file. With tcp and a job
  // that has a name, the job uses the first of ListenOptions::port_window ports that nobody else
  // has taken.
  std::optional<Endpoint> find() const;
  // The process there is not of this job, or nothing listens: find() and serve() use the next port.
  // Returns false, and changes nothing, if `at` is not what find() returns or there is one port
  // alone.
  bool pass_by(const Endpoint& at);
  bool is_on_this_host() const { return !is_file() && !is_of_other_host_; }
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
  Endpoint current() const { return {endpoint_.host, endpoint_.port + offset_}; }

  const std::string explicit_secret_, host_id_;
  std::string path_, nonce_, secret_hex_, own_address_;
  Endpoint endpoint_;  // with the first port
  int window_ = 1, offset_ = 0;
  bool is_of_other_host_ = false;
};

}  // namespace backends
