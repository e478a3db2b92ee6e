// Implements the route: the relay's address, and the text about links.
#include "backends/relay/relay_route.h"

#include <utility>

#include "backends/backend_error.h"
#include "backends/identity/name_lookup.h"

namespace backends {
namespace {

constexpr std::size_t kMaxListedPairs = 6;

}  // namespace

RelayRoute::RelayRoute(Endpoint relay, Secret secret, std::string job,
                       std::unique_ptr<RelayServer> server)
    : relay_(std::move(relay)),
      secret_(std::move(secret)),
      job_(std::move(job)),
      server_(std::move(server)) {}

void RelayRoute::note_relayed(int rank) {
  const std::lock_guard lock(mutex_);
  relayed_.insert(rank);
}

bool RelayRoute::was_relayed(int rank) const {
  const std::lock_guard lock(mutex_);
  return relayed_.contains(rank);
}

bool RelayRoute::is_new_report(int world_size, const std::string& links) {
  const std::lock_guard lock(mutex_);
  if (world_size < reported_size_ || (world_size == reported_size_ && links == reported_))
    return false;
  reported_size_ = world_size;
  reported_ = links;
  return true;
}

std::unique_ptr<RelayRoute> make_relay_route(RelayRouteRequest r) {
  const bool at_rank_zero = r.place.is_rank_zero();
  Endpoint relay{at_rank_zero ? r.rank_zero.host : r.place.host, r.place.port};
  std::string reason;
  const std::vector<std::string> addresses = look_up_host(relay.host, r.deadline, reason);
  if (addresses.empty()) throw PeerError("no relay at " + to_string(relay) + ": " + reason);
  relay.host = addresses.front();
  std::unique_ptr<RelayServer> server;
  if (at_rank_zero && r.rank == 0)
    server = std::make_unique<RelayServer>(RelayServerOptions{
        .listener = listen_on(relay), .secret = r.secret, .report = {}, .notice = r.notice});
  return std::make_unique<RelayRoute>(std::move(relay), std::move(r.secret), std::move(r.job),
                                      std::move(server));
}

std::string links_text(int world_size, const std::set<std::pair<int, int>>& relayed,
                       const Endpoint& relay) {
  const auto pairs =
      static_cast<std::size_t>(world_size) * static_cast<std::size_t>(world_size - 1) / 2;
  std::string text = "links: " + std::to_string(pairs - relayed.size()) + " direct, " +
                     std::to_string(relayed.size()) + " through the relay at " + to_string(relay);
  if (relayed.empty() || relayed.size() > kMaxListedPairs) return text;
  std::string list;
  for (const auto& [lower, higher] : relayed)
    list += (list.empty() ? "" : ", ") + std::to_string(lower) + "-" + std::to_string(higher);
  return text + " (ranks " + list + ")";
}

}  // namespace backends
