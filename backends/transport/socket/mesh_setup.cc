// Connects and authenticates the mesh.
#include "backends/transport/socket/mesh_setup.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <utility>

#include "backends/backend_error.h"
#include "backends/identity/name_lookup.h"
#include "backends/relay/relay_route.h"
#include "backends/transport/socket/link_patience.h"
#include "io/base/files/system_error_text.h"
#include "io/base/machine/cpu_affinity.h"
#include "io/base/time/deadline.h"

namespace backends {
namespace {

constexpr auto kRetryTime = std::chrono::milliseconds(50);  // between attempts to connect
constexpr auto kRelayRetryTime = std::chrono::milliseconds(200);
constexpr auto kProbeTime = std::chrono::seconds(1);  // between probes of a peer that connects
constexpr std::size_t kMaxUnprovenLinks = 64;  // beyond that the oldest is closed; a peer retries
constexpr int kMeshPollMs = 100;               // between checks for failures
constexpr auto kDirectTime = std::chrono::seconds(2);  // before the relay is used as well

std::string key(const BackendContext& context, int rank) {
  return context.prefix + "/socket/" + std::to_string(rank);
}

// Returns where the peer of an accepted connection listens. From another address than that it comes
// through a router or another interface, and a refusal there would say nothing of the process.
Endpoint listening_peer(int fd, const MeshHello& hello) {
  const Endpoint peer = peer_endpoint(fd);
  if (hello.listens == 0 || hello.address != address_digest(peer.host)) return {};
  return {peer.host, hello.listens};
}

// Starts a non-blocking connect; returns an empty socket if it fails at once, with errno.
Socket begin_connect(const Endpoint& to) {
  Socket socket = start_connecting(to, [&](int fd) {
    bound_buffers(fd);
    if (is_loopback(to.host)) do_not_pace(fd);
  });
  if (!socket && errno == EMFILE)
    throw Error("connecting to another rank: " + base::system_error_text(EMFILE));
  return socket;
}

}  // namespace

// The bytes that both ends' kernels hold, or all four and the relay if the connection may go
// through it, with room for a segment beyond that.
std::size_t replay_bytes(bool may_be_relayed) {
  constexpr std::size_t kSlack = 512 << 10;
  const std::size_t relayed = may_be_relayed ? kMaxBytesInFlight + kRelayBufferBytes : 0;
  return bytes_in_flight() + relayed + kSlack;
}

MeshSetup::MeshSetup(const BackendContext& context, SocketMesh& mesh)
    : context_(context),
      mesh_(mesh),
      deadline_(context.clock.deadline_in(context.time_to_connect())),
      targets_(mesh.links_.size()),
      missing_((context.world_size - 1) * mesh.streams()) {
  mesh_.oversubscribed_ = mesh_.on_loopback() && context.world_size > base::count_of_cpus();
}

void MeshSetup::run() {
  publish();
  look_up_peers();
  while (missing_ > 0) {
    for (Target& target : targets_) connect(target);
    wait();
    sweep();
  }
  if (context_.relay != nullptr) report_links();
  if (accepts()) context_.store.remove(key(context_, context_.rank));  // all peers have read it
  if (!mesh_.resumes()) listener_.close();
}

void MeshSetup::publish() {
  if (!accepts() && !mesh_.resumes()) return;  // the last rank connects to all others
  listener_ = listen_on({context_.address, 0});
  bound_buffers(listener_.fd());  // before the port is published
  if (mesh_.on_loopback()) do_not_pace(listener_.fd());
  if (accepts())
    context_.store.set(key(context_, context_.rank), to_string(local_endpoint(listener_.fd())));
}

void MeshSetup::look_up_peers() {
  for (int peer = 0; peer < context_.world_size; ++peer) {
    Endpoint to;
    if (peer < context_.rank) {
      const auto left =
          std::max(std::chrono::ceil<std::chrono::milliseconds>(deadline_ - context_.clock.now()),
                   std::chrono::milliseconds(0));
      to = parse_endpoint(context_.store.get(key(context_, peer), left), "a rank's address");
    }
    for (int stream = 0; stream < mesh_.streams(); ++stream)
      target_of(peer, stream) = {
          .peer = peer, .stream = stream, .connects = peer < context_.rank, .to = to};
  }
  for (Target& target : targets_) target.relay_from = relay_start(target);
}

// A pair that needed the relay once goes there at once.
Deadline MeshSetup::relay_start(const Target& target) const {
  if (context_.relay == nullptr || context_.relay->was_relayed(context_.group_rank(target.peer)))
    return {};
  return base::deadline_in(kDirectTime);
}

bool MeshSetup::needs_connection(const Target& target) const {
  if (target.peer == context_.rank) return false;
  const std::unique_ptr<MeshLink>& link = link_of(target);
  return repairing_ ? link->is_down() && !link->is_given_up() : link == nullptr;
}

void MeshSetup::connect(Target& target) {
  if (!needs_connection(target)) return;
  const bool may_be_direct = target.connects || (repairing_ && target.to.port != 0);
  if (may_be_direct && !target.has_direct && base::has_passed(target.next_direct))
    connect_directly(target);
  if (context_.relay != nullptr && !target.has_relayed && base::has_passed(target.relay_from) &&
      base::has_passed(target.next_relayed))
    connect_to_relay(target);
}

void MeshSetup::connect_directly(Target& target) {
  target.next_direct =
      target.connects ? base::deadline_in(kRetryTime) : base::deadline_in(kProbeTime);
  Attempt attempt;
  attempt.socket = begin_connect(target.to);
  if (!attempt.socket) return note_connect(target, errno);
  attempt.outgoing = target.connects;
  attempt.target = &target;
  attempt.stage = Stage::kConnecting;
  attempt.until = repairing_ ? context_.clock.deadline_in(kLinkHandshakeTimeout) : deadline_;
  target.has_direct = true;
  attempts_.push_back(std::move(attempt));
}

// A direct connect() has ended with `error`, 0 for none.
void MeshSetup::note_connect(Target& target, int error) {
  target.error = error;
  if (!repairing_ || error != ECONNREFUSED || target.relayed) return;
  link_of(target)->give_up(to_string(target.to) + " refuses connections: the process of " +
                           name_of(target.peer) + " has ended");
}

void MeshSetup::connect_to_relay(Target& target) {
  target.next_relayed = base::deadline_in(kRelayRetryTime);
  if (!relay_until_) relay_until_ = context_.clock.deadline_in(kRelayWait);
  Attempt attempt;
  attempt.socket = begin_connect(context_.relay->relay());
  if (!attempt.socket) return;
  const int lower = std::min(target.peer, context_.rank);
  const int higher = std::max(target.peer, context_.rank);
  attempt.relay_hello =
      make_relay_hello(target.connects ? RelayEnd::kConnector : RelayEnd::kAcceptor,
                       context_.group_rank(context_.rank), context_.group_rank(target.peer),
                       relay_pair(context_.secret, {context_.prefix, lower, higher, target.stream}),
                       context_.relay->job());
  attempt.outgoing = target.connects;
  attempt.relayed = true;
  attempt.target = &target;
  attempt.stage = Stage::kRelayConnecting;
  attempt.until = context_.clock.deadline_in(kRelayHandshakeTimeout);
  target.has_relayed = true;
  attempts_.push_back(std::move(attempt));
}

void MeshSetup::wait() {
  std::vector<pollfd> polled = polled_attempts();
  const bool retrying = std::ranges::any_of(targets_, [this](const Target& t) {
    return t.connects && !t.has_direct && needs_connection(t);
  });
  const int most = retrying ? static_cast<int>(kRetryTime.count()) : kMeshPollMs;
  const int ready =
      poll(polled.data(), polled.size(), std::min(most, context_.clock.poll_ms(deadline_)));
  if (const auto failure = context_.watch.known_failure(std::chrono::milliseconds(0)))
    failure->raise();
  if (context_.clock.has_passed(deadline_)) throw_timeout();
  if (relay_until_ && context_.clock.has_passed(*relay_until_))
    throw PeerError("no connection with rank " + missing_ranks() + "; the relay at " +
                    to_string(context_.relay->relay()) + " has not answered for " +
                    std::to_string(kRelayWait.count()) + " s");
  if (ready > 0) serve_ready(polled);
}

// The listener, and the attempts in their order.
std::vector<pollfd> MeshSetup::polled_attempts() const {
  std::vector<pollfd> polled{{acceptor_.polled_fd(listener_.fd()), POLLIN, 0}};
  for (const Attempt& a : attempts_) {
    const bool opens = a.stage == Stage::kConnecting || a.stage == Stage::kRelayConnecting;
    polled.push_back({a.socket.fd(), static_cast<short>(opens ? POLLOUT : POLLIN), 0});
  }
  return polled;
}

void MeshSetup::serve_ready(const std::vector<pollfd>& polled) {
  for (std::size_t i = 0; i < attempts_.size(); ++i) {
    Attempt& attempt = attempts_[i];
    if (polled[i + 1].revents == 0) continue;
    if (attempt.target != nullptr && !needs_connection(*attempt.target)) {
      attempt.stage = Stage::kFailed;  // another one was first
    } else if (repairing_) {
      serve_or_give_up(attempt);
    } else {
      serve(attempt);
    }
  }
  if (polled[0].revents != 0) accept_all();
}

void MeshSetup::accept_all() {
  for (std::size_t i = 0; i < kMaxUnprovenLinks; ++i) {
    Socket socket = acceptor_.accept(listener_.fd());
    // During repairs it pauses: the connection may be anyone's.
    if (!socket && errno == EMFILE && !repairing_)
      throw Error("accepting the connection of another rank: " + base::system_error_text(EMFILE));
    if (!socket) return;
    prepare_stream(socket.fd());
    Attempt attempt;
    attempt.socket = std::move(socket);
    attempt.until = context_.clock.deadline_in(kLinkHandshakeTimeout);
    attempts_.push_back(std::move(attempt));
  }
}

void MeshSetup::keep(Attempt& attempt, int peer, std::uint32_t machine) {
  const int fd = attempt.socket.fd();
  if (machine == machine_digest() && !attempt.relayed) do_not_pace(fd);
  if (mesh_.resumes()) {
    notice_silence(fd, context_.link_patience);
  } else if (context_.relay != nullptr) {
    keep_alive(fd, kRelayKeepAlive);  // routers forget idle ones
  }
  const LinkKeys keys = (attempt.outgoing ? connector_keys : acceptor_keys)(
      context_.secret, context_.prefix, attempt.hello, attempt.challenge);
  Target& target = target_of(peer, attempt.hello.stream);
  const Endpoint to = attempt.relayed ? Endpoint{} : listening_peer(fd, attempt.hello);
  attempt.stage = Stage::kDone;
  if (repairing_) {
    if (!resume(attempt, target, keys)) return;
  } else {
    std::unique_ptr<MeshLink>& place = mesh_.links_[mesh_.index(peer, attempt.hello.stream)];
    if (!place) --missing_;
    // On a second connection of the same peer: the peer has abandoned the first.
    place = std::make_unique<MeshLink>(std::move(attempt.socket), keys, attempt.hello.epoch,
                                       mesh_.resuming());
  }
  target.relayed = attempt.relayed;
  if (!target.connects) target.to = to;
  if (!attempt.relayed) return;
  relayed_.insert(peer);
  context_.relay->note_relayed(context_.group_rank(peer));
}

// Removes attempts that are done, failed, too late or no longer needed.
void MeshSetup::sweep() {
  const auto now = context_.clock.now();
  const auto is_over = [](const Attempt& a) {
    return a.stage == Stage::kDone || a.stage == Stage::kFailed;
  };
  std::size_t unproven = 0;
  for (auto a = attempts_.rbegin(); a != attempts_.rend(); ++a) {  // the newest first
    const bool accepted = a->target == nullptr;
    if (!is_over(*a) && (now >= a->until || (!accepted && !needs_connection(*a->target))))
      a->stage = Stage::kFailed;
    if (!is_over(*a) && accepted && a->stage != Stage::kEstablishing &&
        ++unproven > kMaxUnprovenLinks)
      a->stage = Stage::kFailed;
    if (is_over(*a) && !accepted)
      (a->relayed ? a->target->has_relayed : a->target->has_direct) = false;
  }
  std::erase_if(attempts_, is_over);
}

std::string MeshSetup::missing_ranks() const {
  std::string names;
  for (int peer = 0; peer < context_.world_size; ++peer) {
    if (peer == context_.rank) continue;
    for (int stream = 0; stream < mesh_.streams(); ++stream) {
      if (mesh_.links_[mesh_.index(peer, stream)]) continue;
      names += (names.empty() ? "" : ", ") + std::to_string(context_.group_rank(peer));
      break;
    }
  }
  return names;
}

void MeshSetup::throw_timeout() {
  throw PeerError("timeout after " + std::to_string(context_.time_to_connect().count()) +
                  " ms, no connection with rank " + missing_ranks() + timeout_hint());
}

std::string MeshSetup::timeout_hint() const {
  const auto at = [&](Stage stage) {
    return std::ranges::find_if(attempts_, [=](const Attempt& a) { return a.stage == stage; });
  };
  if (context_.relay != nullptr) {
    const std::string relay = "the relay at " + to_string(context_.relay->relay());
    if (at(Stage::kRelayWaiting) != attempts_.end())
      return "; " + relay + " has waited for the other end: do all ranks reach it?";
    if (relayed_.empty()) return "; no answer from " + relay;
    return "";
  }
  constexpr const char* kRule =
      ": a firewall must let ranks connect to all ports of each other, not only to rank 0's; "
      "where none can, give all ranks --relay rank0:PORT";
  if (const auto silent = at(Stage::kConnecting); silent != attempts_.end())
    return "; no answer from " + to_string(silent->target->to) + kRule;
  const auto failed = std::ranges::find_if(
      targets_, [this](const Target& t) { return t.error != 0 && needs_connection(t); });
  if (failed != targets_.end())
    return "; " + to_string(failed->to) + ": " + base::system_error_text(failed->error) + kRule;
  if (accepts() && !mesh_.on_loopback())
    return "; if they cannot connect to " + context_.address +
           ", give all ranks --relay rank0:PORT";
  return "";
}

// Tells the user of rank 0 how the pairs are connected. Collective.
void MeshSetup::report_links() {
  const auto key_of = [&](int rank) { return key(context_, rank) + "/relayed"; };
  if (context_.rank != 0) {
    std::string lower;
    for (const int peer : relayed_) {
      if (peer < context_.rank) lower += std::to_string(peer) + " ";
    }
    return context_.store.set(key_of(context_.rank), lower);
  }
  std::set<std::pair<int, int>> pairs;
  for (int rank = 1; rank < context_.world_size; ++rank) {
    std::istringstream in(context_.store.get(key_of(rank), context_.time_to_connect()));
    context_.store.remove(key_of(rank));
    for (int peer = 0; in >> peer;)
      pairs.emplace(context_.group_rank(peer), context_.group_rank(rank));
  }
  const std::string text = links_text(context_.world_size, pairs, context_.relay->relay());
  if (context_.group_rank(0) == 0 && context_.notice &&
      context_.relay->is_new_report(context_.world_size, text))
    context_.notice(text);
}

}  // namespace backends
