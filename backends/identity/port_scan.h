// Rank 0's listener and the other ranks' search for it, on one port or in a window of ports.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backends/store/secret.h"
#include "backends/store/store_session.h"
#include "backends/store/tcp_socket.h"

namespace backends {

// Listens on the first free port of `window` ports from `first` on, and says through `notice` when
// that is not the first. Throws as listen_on() does.
Socket listen_in_window(const Endpoint& first, int window,
                        const std::function<void(const std::string&)>& notice);

// Knocks at every port of the window in turn until one opens. Strangers that answer something else,
// another job's server and silence are passed over; each costs a bounded time, from one second in
// the first round to five.
class PortScan {
 public:
  // `restarted`: the server of the group before may still be there; it is passed over like a
  // stranger.
  PortScan(std::string host, int first_port, int window, bool restarted);

  // One round over all ports and addresses. Empty when rank 0 was not found: `reason` says the most
  // telling thing that was met. With a window of one port and no restart, throws as open_session()
  // does.
  [[nodiscard]] std::optional<StoreSession> round(const Secret& secret, const Hello& hello,
                                                  Deadline deadline, std::string& reason);

  const Endpoint& found() const { return found_; }  // where round() succeeded
  const std::string& other_secret() const {
    return other_secret_;
  }                           // a server with another secret was met in the last whole round
  std::string place() const;  // "n1:10001" or "n1, ports 10001 to 10016"
  // Rank 0's host is this one when it listens at `address`: used in place of a loopback address
  // that the name gives here.
  void use_instead_of_loopback(std::string address) { instead_of_loopback_ = std::move(address); }

 private:
  const std::string host_;
  const int first_port_, window_;
  const Doubt doubt_;
  std::string instead_of_loopback_, other_secret_;
  std::chrono::milliseconds patience_{1000};
  Endpoint found_;
};

}  // namespace backends
