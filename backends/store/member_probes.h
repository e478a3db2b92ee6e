// Probes of members by the store's server: non-blocking connections to the ports that they have
// reported, which answer with one byte.
#pragma once

#include <poll.h>

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backends/store/connection_acceptor.h"
#include "backends/store/protocol/server_machine.h"
#include "backends/store/tcp_socket.h"

namespace backends {

inline constexpr char kProbeAnswer = 1;

class MemberProbes {
 public:
  using Report = std::function<void(LinkId, ServerMachine::Probe)>;
  explicit MemberProbes(Report report) : report_(std::move(report)) {}

  // Replaces an earlier probe for the same link.
  void start(LinkId link, const std::string& address);
  // Appends the descriptors to be polled, and serves them from the same place on.
  void add_to(std::vector<pollfd>& polled) const;
  void serve(const std::vector<pollfd>& polled, std::size_t from);

 private:
  struct Probe {
    Socket socket;
    bool connected = false;
    Deadline until{};
  };
  // Returns true if the probe is over.
  [[nodiscard]] bool serve_one(LinkId link, Probe& probe, bool ready);

  const Report report_;
  std::map<LinkId, Probe> probes_;
};

// Answers all probes that wait at the listener.
void answer_probes(ConnectionAcceptor& acceptor, int listener);

}  // namespace backends
