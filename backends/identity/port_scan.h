// Rank 0's listener and the other ranks' search for it, on one port or a window of ports.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backends/secret.h"
#include "backends/store/store_session.h"
#include "backends/store/tcp_socket.h"

namespace backends {

// Listens on the first free port of `window` ports from `first` on, with a notice if that is not
// the first. Throws as listen_on() does.
Socket listen_in_window(const Endpoint& first, int window,
                        const std::function<void(const std::string&)>& notice);

// Connects to every port of the window, one after the other, until rank 0 answers. Other services,
// other jobs' servers and ports that do not answer are skipped; each costs at most one second in
// the first round and five in later ones.
class PortScan {
 public:
  // `restarted`: the server of the previous group may still listen; it is also skipped.
  PortScan(std::string host, int first_port, int window, bool restarted);

  // Runs one round over all ports and addresses. Empty if rank 0 was not found: `reason` is the
  // most informative failure. With a window of one port and no restart, throws as open_session()
  // does.
  [[nodiscard]] std::optional<StoreSession> round(const Secret& secret, const Hello& hello,
                                                  Deadline deadline, std::string& reason);

  const Endpoint& found() const { return found_; }  // the endpoint at which round() succeeded
  // Returns the error if a server with another secret was found in any round; such a rank 0 may
  // time out before this rank does.
  const std::string& other_secret() const { return other_secret_; }
  std::string place() const;  // "n1:10001" or "n1, ports 10001 to 10016"
  // Connects to `address` if the name of rank 0's host resolves to loopback.
  void use_instead_of_loopback(std::string address) { instead_of_loopback_ = std::move(address); }

 private:
  const std::string host_;
  const int first_port_, window_;
  const OtherServers others_;
  UnprovedAnswers unproved_;
  std::string instead_of_loopback_, other_secret_;
  std::chrono::milliseconds timeout_{1000};
  Endpoint found_;
};

}  // namespace backends
