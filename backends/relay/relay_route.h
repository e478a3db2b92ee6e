// A rank's way to the relay of its job, and what it knows of the pairs that need it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "backends/group.h"
#include "backends/relay/relay_message.h"
#include "backends/relay/relay_server.h"
#include "backends/secret.h"
#include "backends/store/tcp_socket.h"

namespace backends {

// Thread-safe.
class RelayRoute {
 public:
  // `relay`: with a numeric host. `secret`: the job's. `server`: the relay itself, if this process
  // runs it.
  RelayRoute(Endpoint relay, Secret secret, std::string job,
             std::unique_ptr<RelayServer> server = nullptr);

  const Endpoint& relay() const { return relay_; }
  const Secret& secret() const { return secret_; }
  const std::string& job() const { return job_; }

  // A pair that needed the relay once goes there at once for its next connection.
  void note_relayed(int rank);
  bool was_relayed(int rank) const;
  // Returns true if a pair has needed the relay.
  bool has_pairs() const;
  // Asks the relay for its proof of the job's secret. Returns why there is none, e.g. "Connection
  // refused"; "" if it came, and in the relay's own process. Takes at most a second.
  std::string fault() const;
  // Asks likewise. Returns true if the relay accepts the connection and sends nothing, as a stopped
  // process does.
  bool is_silent() const;
  // Returns true for the links of more ranks than reported before, or of as many with another text.
  bool is_new_report(int world_size, const std::string& links);

 private:
  const Endpoint relay_;
  const Secret secret_;
  const std::string job_;
  const std::unique_ptr<RelayServer> server_;
  mutable std::mutex mutex_;
  std::set<int> relayed_;  // ranks of the group
  int reported_size_ = 0;
  std::string reported_;
};

// The arguments of make_relay_route().
struct RelayRouteRequest {
  RelayPlace place;
  int rank = 0;
  Endpoint rank_zero;  // the rendezvous, as this rank reaches it
  Secret secret;       // the job's
  std::string job;
  Deadline deadline;  // for looking up the relay's name, and for its first answer
  // As in GroupOptions; what it throws ends the wait.
  std::function<bool()> cancelled = {};
  std::function<void(const std::string&)> notice;
};
// On rank 0 also starts the relay if `place` is rank 0. Waits up to kRelayWait for a relay that is
// being started, with a notice. Throws PeerError for a name that cannot be looked up or a relay
// that does not answer, AuthenticationError for one with another secret, CancelledError, and as
// listen_on().
inline constexpr auto kRelayWait = std::chrono::seconds(20);
std::unique_ptr<RelayRoute> make_relay_route(RelayRouteRequest request);

// Describes the pairs of `world_size` ranks: "links: 5 direct, 1 through the relay at
// 203.0.113.7:29600 (ranks 1-2)". `relayed`: pairs, the lower rank first; few are listed.
std::string links_text(int world_size, const std::set<std::pair<int, int>>& relayed,
                       const Endpoint& relay);

}  // namespace backends
