// The join endpoint of an elastic job, where joining ranks find it: an address that a process
// serves, or a file that names a process.
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
  // Listens at an address that joining processes can reach; never on a port of the join endpoint,
  // which the kernel may choose while no process serves it.
  Socket listen_beside() const;
  // The endpoint that joining processes call now; none while there is no file. With tcp and a job
  // that has a name, the job uses the first of ListenOptions::port_window ports that no other
  // program has taken.
  std::optional<Endpoint> find() const;
  // Called if the process there is not of this job, or nothing listens: makes find() and serve()
  // use the next port. Returns false, and changes nothing, if `at` is not what find() returns or
  // the window has only one port.
  bool pass_by(const Endpoint& at);
  bool is_on_this_host() const { return !is_file() && !is_of_other_host_; }
  // Returns the job's secret: the given one, else that of the file, which is created if it does not
  // exist.
  Secret secret(const Endpoint& agent);

  // tcp: listens there. Empty if another process does, or if the address is not of this host.
  Socket serve();
  // file: makes it name this process, if it does not exist or certainly names a dead process of
  // this host. Returns true if the file names this process.
  bool take(const Endpoint& agent);
  void show(const Endpoint& agent);  // file: makes it name this process
  void remove();                     // file: removes it if it names this process

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
