// Implements the route: the relay's address, and the text about links.
#include "backends/relay/relay_route.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "backends/backend_error.h"
#include "backends/identity/name_lookup.h"
#include "io/base/files/system_error_text.h"
#include "io/base/files/transient_error.h"
#include "io/base/time/deadline.h"

namespace backends {
namespace {

constexpr std::size_t kMaxListedPairs = 6;
constexpr std::chrono::milliseconds kRelayPortTime{2000};
constexpr auto kProbeTime = std::chrono::seconds(1);
constexpr auto kProbePause = std::chrono::milliseconds(100);
// A single wrong proof may be a byte that was changed in transit.
constexpr int kMaxWrongProofs = 5;

enum class RelayAnswer {
  kProof,
  kOtherSecret,
  kSilence,  // it has accepted the connection
  kOther,    // the same, and has ended it: no relay of this version
  kNone,     // nothing has accepted it
};

// Begins the handshake of a rank, up to the relay's proof, with a name that no pair has.
RelayAnswer ask_relay(const Endpoint& relay, const Secret& secret, const std::string& job,
                      std::string& reason) {
  const Deadline until = base::deadline_in(kProbeTime);
  const Socket socket = connect_to(relay, until, reason);
  if (!socket) return RelayAnswer::kNone;
  const RelayHello hello =
      make_relay_hello(RelayEnd::kAcceptor, 0, 0, std::string(kMacBytes, '\0'), job);
  RelayChallenge challenge;
  char* to = reinterpret_cast<char*>(&challenge);
  std::size_t missing = sizeof challenge;
  if (send(socket.fd(), &hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof hello) {
    reason = base::system_error_text(errno);
    return RelayAnswer::kOther;
  }
  while (missing > 0) {
    pollfd ready{socket.fd(), POLLIN, 0};
    if (poll(&ready, 1, base::milliseconds_left(until)) == 0) {
      reason = "it accepts the connection and does not answer the handshake";
      return RelayAnswer::kSilence;
    }
    const ssize_t n = recv(socket.fd(), to, missing, MSG_DONTWAIT);
    if (n < 0 && base::is_transient(errno)) continue;
    if (n <= 0) {
      reason = "it ended the handshake; is it a relay of this version?";
      return RelayAnswer::kOther;
    }
    to += n;
    missing -= static_cast<std::size_t>(n);
  }
  return proves_relay(secret, hello, challenge) ? RelayAnswer::kProof : RelayAnswer::kOtherSecret;
}

// Returns what to check if a relay gives that answer.
const char* hint_for(RelayAnswer answer, const RelayPlace& place) {
  if (answer == RelayAnswer::kSilence)
    return "; does another program listen there, or is the relay stopped?";
  if (answer == RelayAnswer::kOther) return "";
  return place.is_rank_zero() ? "; must a firewall let this rank connect there?"
                              : "; is `engine relay` running there?";
}

void wait_for_relay(const RelayRouteRequest& r, const Endpoint& relay) {
  const Deadline until = std::min(r.deadline, base::deadline_in(kRelayWait)),
                 quiet_until = base::deadline_in(kProbeTime);  // rank 0's relay may be starting
  bool reported = false;
  for (int wrong_proofs = 0;;) {
    std::string reason;
    const RelayAnswer answer = ask_relay(relay, r.secret, r.job, reason);
    if (answer == RelayAnswer::kProof) return;
    if (answer == RelayAnswer::kOtherSecret && ++wrong_proofs == kMaxWrongProofs)
      throw AuthenticationError(
          "the process at " + to_string(relay) +
          ", expected to be the relay, does not know this job's secret (from " + r.secret.origin +
          ")");
    const bool missing = answer != RelayAnswer::kOtherSecret;
    if (missing && base::has_passed(until))
      throw PeerError("no relay at " + to_string(relay) + ": " + reason +
                      hint_for(answer, r.place));
    if (missing && !reported && base::has_passed(quiet_until) && r.notice) {
      reported = true;
      r.notice("no relay at " + to_string(relay) + " yet: " + reason + "; waiting for at most " +
               std::to_string(kRelayWait.count()) + " s");
    }
    if (r.cancelled && r.cancelled()) throw CancelledError("stopped while waiting for the relay");
    std::this_thread::sleep_for(kProbePause);
  }
}

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

bool RelayRoute::has_pairs() const {
  const std::lock_guard lock(mutex_);
  return !relayed_.empty();
}

bool RelayRoute::is_silent() const {
  if (server_) return false;
  std::string reason;
  return ask_relay(relay_, secret_, job_, reason) == RelayAnswer::kSilence;
}

std::string RelayRoute::fault() const {
  if (server_) return "";
  std::string reason;
  const RelayAnswer answer = ask_relay(relay_, secret_, job_, reason);
  if (answer == RelayAnswer::kOtherSecret) reason = "it does not know this job's secret";
  return answer == RelayAnswer::kProof ? "" : reason;
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
        .listener = listen_on(
            relay, kRelayPortTime,
            {.who = "the relay of rank 0 ", .address_hint = "give the host of rank 0, or --iface"}),
        .secret = r.secret,
        .report = {},
        .notice = r.notice});
  else
    wait_for_relay(r, relay);
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
