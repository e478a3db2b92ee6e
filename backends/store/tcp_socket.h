// TCP for the rendezvous: resolve, listen on one address, connect by a deadline.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/backend_error.h"
#include "backends/control_word.h"
#include "io/base/files/descriptor.h"
#include "io/base/time/deadline.h"

namespace backends {

using base::Deadline;
using base::milliseconds_left;

using Socket = base::Descriptor;  // of a connection, or of a listener

struct Endpoint {
  std::string host;  // name or address, IPv6 without brackets
  int port = 0;
};
// Returns the IPv4 address of an IPv4-mapped IPv6 one ("::ffff:10.0.0.7"), which no socket of this
// program can have; other texts as they are.
std::string without_mapping(const std::string& host);
// Parses "HOST:PORT", "1.2.3.4:5", "[::1]:5". A ConfigurationError names `what`. Port 1..65535. The
// host is without_mapping().
Endpoint parse_endpoint(std::string_view text, std::string_view what);
std::string to_string(const Endpoint& endpoint);  // with brackets if needed

// Returns the addresses of one host, in the resolver's order. Throws PeerError if the name cannot
// be resolved (yet).
std::vector<Endpoint> resolve(const Endpoint& endpoint);

class PortTaken : public PeerError {
 public:
  using PeerError::PeerError;
};

// Words of the errors of listen_on().
struct ListenPurpose {
  const char* who = "";  // e.g. "rank 0 ", with the space
  const char* address_hint = "expected one of its addresses";
};
inline constexpr ListenPurpose kRankZeroListens{"rank 0 ", "give the host of rank 0, or --iface"};

// Returns a listening socket on exactly this address (never a wildcard), close-on-exec,
// non-blocking. Waits up to `timeout` for a port that a finished process still holds. Throws
// PortTaken if the port is taken, ConfigurationError if the address is not of this host. Port 0:
// the kernel chooses.
Socket listen_on(const Endpoint& endpoint,
                 std::chrono::milliseconds timeout = std::chrono::milliseconds(2000),
                 const ListenPurpose& purpose = {});

// Tries the addresses of `endpoint` one after the other; on failure returns an empty socket and
// sets `reason`.
[[nodiscard]] Socket connect_to(const Endpoint& endpoint, Deadline deadline, std::string& reason);

// Starts to connect to a numeric address. Returns an empty socket and errno if that fails at once.
// `prepare`, if it is set, gets the socket before the connect.
Socket start_connecting(const Endpoint& endpoint, const std::function<void(int fd)>& prepare = {});
// Returns the errno of a connect() that is over, 0 for success.
int take_connect_error(int fd);

Endpoint endpoint_of(const sockaddr* address, socklen_t length);
Endpoint local_endpoint(int fd);
Endpoint peer_endpoint(int fd);  // port 0: the socket is not connected
std::string peer_text(int fd);   // e.g. "10.0.0.7:4711", for messages

// Returns the address of a network interface ("eth0") or a literal address of this host. Throws
// ConfigurationError that lists the interfaces.
std::string interface_address(const std::string& name_or_address);
// Returns the address from which this host reaches a numeric one; "" if it cannot.
std::string address_towards(const std::string& address);
// Returns the message for an address of this host that this host cannot reach.
std::string no_loopback_text(const std::string& to);
// Returns the address from which this host reaches others by default; without a default route the
// first that is not loopback, else loopback.
std::string default_address();

// Describes an idle connection that a call waits for: "nothing received from rank 1 for 12.0 s,
// 4096 bytes to it not acknowledged"; "" if data came within the last second and all was
// acknowledged. `in` and `out` are its two directions, which may be separate connections.
CallWait silent_link(int in, int out, const std::string& peer);

// Bounds what the kernel holds of a connection. Call this before connect and listen, which fix the
// window scale.
void bound_buffers(int fd);
// The most bytes that the kernels of both ends then hold of one direction: on machines like this
// one, and on any.
std::size_t bytes_in_flight();
inline constexpr std::size_t kMaxBytesInFlight = 6 << 20;

// Makes the kernel probe a peer that sends nothing: after this time, then at the interval. So many
// probes without an answer end the connection.
struct KeepAlive {
  int idle_seconds, interval_seconds, max_unanswered;
};
void keep_alive(int fd, const KeepAlive& times);
// Sends a message without waiting; true if the kernel took all of it, as an empty send buffer does.
bool send_at_once(int fd, std::string_view bytes);

void prepare_stream(int fd);  // sets non-blocking mode and TCP_NODELAY
// For connections that do not leave the machine: selects Reno if the kernel would use BBR, which
// paces the data at the rate of a path that it measures, with a timer for each segment. If called
// before connect() and listen(), no such timer is ever set.
void do_not_pace(int fd);

}  // namespace backends
