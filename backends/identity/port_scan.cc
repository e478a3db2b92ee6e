// Implements listening in a window of ports, and the search for the listener.
#include "backends/identity/port_scan.h"

#include <algorithm>

#include "backends/backend_error.h"
#include "backends/identity/name_lookup.h"

namespace backends {
namespace {

constexpr std::chrono::milliseconds kMaxTimeout{5000}, kNoWait{0}, kWaitForPort{2000};

}  // namespace

Socket listen_in_window(const Endpoint& first, int window,
                        const std::function<void(const std::string&)>& notice) {
  if (window <= 1) return listen_on(first, kWaitForPort, kRankZeroListens);
  for (int port = first.port; port < first.port + window; ++port) {
    try {
      Socket socket = listen_on({first.host, port}, kNoWait, kRankZeroListens);
      if (port != first.port && notice)
        notice("port " + std::to_string(first.port) + " of " + first.host +
               " is taken: using port " + std::to_string(port));
      return socket;
    } catch (const PortTaken&) {
      // Try the next port.
    }
  }
  throw PeerError("rank 0 cannot listen on " + first.host + ": the ports " +
                  std::to_string(first.port) + " to " + std::to_string(first.port + window - 1) +
                  " are all taken by other processes; give another MASTER_PORT");
}

PortScan::PortScan(std::string host, int first_port, int window, bool restarted)
    : host_(std::move(host)),
      first_port_(first_port),
      window_(std::max(1, window)),
      others_(restarted    ? OtherServers::kAtAddress
              : window > 1 ? OtherServers::kOnPort
                           : OtherServers::kNone) {}

std::string PortScan::place() const {
  if (window_ == 1) return to_string(Endpoint{host_, first_port_});
  return host_ + ", ports " + std::to_string(first_port_) + " to " +
         std::to_string(first_port_ + window_ - 1);
}

std::optional<StoreSession> PortScan::round(const Secret& secret, const Hello& hello,
                                            Deadline deadline, std::string& reason) {
  std::vector<std::string> addresses = look_up_host(host_, deadline, reason);
  for (std::string& address : addresses) {
    if (!instead_of_loopback_.empty() && is_loopback(address)) address = instead_of_loopback_;
  }
  std::string best_reason;
  for (int port = first_port_; port < first_port_ + window_; ++port) {
    for (const std::string& address : addresses) {
      const auto now = std::chrono::steady_clock::now();
      if (now >= deadline) break;
      const Endpoint at{address, port};
      std::string why;
      const Deadline until =
          others_ != OtherServers::kNone ? std::min(deadline, now + timeout_) : deadline;
      SessionFault fault = SessionFault::kNotReached;
      Hello here = hello;
      if (window_ > 1) here.port = port;
      if (std::optional<StoreSession> session =
              open_session(at, secret, here, until, unproved_.rule(others_), why, &fault)) {
        found_ = at;
        return session;
      }
      unproved_.note(fault);
      if (fault == SessionFault::kOtherSecret && others_ != OtherServers::kNone)
        other_secret_ = why;
      if (fault != SessionFault::kNotReached && window_ > 1)
        best_reason = "port " + std::to_string(port) + ": " + why;
      reason = why;
    }
  }
  if (!best_reason.empty()) reason = best_reason;
  timeout_ = std::min(2 * timeout_, kMaxTimeout);
  return std::nullopt;
}

}  // namespace backends
