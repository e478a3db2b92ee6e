// Implements the starts and ends of attempts. mesh_handshake.cc has what is between.
#include "backends/transport/socket/mesh_connector.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "backends/backend_error.h"
#include "backends/identity/name_lookup.h"
#include "backends/relay/relay_route.h"
#include "backends/transport/repair/link_patience.h"
#include "io/base/files/system_error_text.h"

namespace backends {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kMeshRetryTime{50};  // between direct attempts
constexpr milliseconds kMeshProbeTime{1000};
constexpr milliseconds kRelayRetryTime{200};
constexpr std::chrono::seconds kDirectTime(2);  // before the relay is used as well
// A break is reported if the peer's process has not proved gone by then.
constexpr milliseconds kMeshReportTime{200};
constexpr std::size_t kMaxUnprovenLinks = 64;  // beyond that the oldest is closed; a peer retries

LinkMachine::Rules mesh_link_rules(const BackendContext& context) {
  const ConnectSchedule::Paces paces{{{}, kMeshRetryTime, kMeshRetryTime},
                                     {{}, kMeshProbeTime, kMeshProbeTime},
                                     {kDirectTime, kRelayRetryTime, kRelayRetryTime}};
  return {.patience = context.link_patience,
          .report_delay = kMeshReportTime,
          .numbers = ConnectionNumbers::Of::kConnections,
          .has_relay = context.relay != nullptr,
          .set_up = paces,
          .repair = paces};
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

// A pair that needed the relay once goes there at once.
bool starts_at_relay(const BackendContext& context, int peer) {
  return context.relay != nullptr && context.relay->was_relayed(context.group_rank(peer));
}

bool is_on_loopback(const BackendContext& context) {
  return context.address.starts_with("127.") || context.address == "::1";
}

void MeshConnector::start(const std::vector<Endpoint>& listeners) {
  const auto now = context_.clock.now();
  const LinkMachine::Rules rules = mesh_link_rules(context_);
  for (int peer = 0; peer < context_.world_size; ++peer) {
    const bool connects = peer < context_.rank;
    for (int stream = 0; stream < context_.streams; ++stream) {
      targets_.push_back({.peer = peer, .stream = stream, .connects = connects});
      MeshTarget& target = targets_.back();
      if (connects) target.to = listeners[static_cast<std::size_t>(peer)];
      target.machine = LinkMachine(rules, now, starts_at_relay(context_, peer));
    }
  }
}

MeshTarget& MeshConnector::target_of(int peer, int stream) {
  return targets_[static_cast<std::size_t>(peer) * static_cast<std::size_t>(context_.streams) +
                  static_cast<std::size_t>(stream)];
}

void MeshConnector::listen() {
  listener_ = listen_on({context_.address, 0});
  bound_buffers(listener_.fd());  // before the port is published
  if (is_on_loopback(context_)) do_not_pace(listener_.fd());
}

void MeshConnector::connect() {
  for (MeshTarget& target : targets_) {
    if (target.peer != context_.rank) connect_to(target);
  }
}

// The end that accepts opens a direct connection after a break, only as a probe: a refusal means
// that the peer's process has ended.
void MeshConnector::connect_to(MeshTarget& target) {
  const auto now = context_.clock.now();
  const ConnectWay way = target.connects ? ConnectWay::kDirect : ConnectWay::kProbe;
  if (target.to.port != 0 && target.machine.begin(way, now)) connect_directly(target, way);
  if (context_.relay != nullptr && target.machine.begin(ConnectWay::kRelay, now))
    connect_to_relay(target);
}

void MeshConnector::connect_directly(MeshTarget& target, ConnectWay way) {
  MeshAttempt attempt;
  attempt.socket = begin_connect(target.to);
  if (!attempt.socket) {
    target.machine.schedule().end(way);
    target.error = errno;
    return client_->on_connect(target);
  }
  attempt.outgoing = target.connects;
  attempt.way = way;
  attempt.target = &target;
  attempt.stage = Stage::kConnecting;
  attempt.until = client_->direct_limit();
  attempts_.push_back(std::move(attempt));
}

void MeshConnector::connect_to_relay(MeshTarget& target) {
  if (!relay_until_) relay_until_ = context_.clock.deadline_in(kRelayWait);
  MeshAttempt attempt;
  attempt.socket = begin_connect(context_.relay->relay());
  if (!attempt.socket) return target.machine.schedule().end(ConnectWay::kRelay);
  const int lower = std::min(target.peer, context_.rank);
  const int higher = std::max(target.peer, context_.rank);
  attempt.relay_hello =
      make_relay_hello(target.connects ? RelayEnd::kConnector : RelayEnd::kAcceptor,
                       context_.group_rank(context_.rank), context_.group_rank(target.peer),
                       relay_pair(context_.secret, {context_.prefix, lower, higher, target.stream}),
                       context_.relay->job());
  attempt.outgoing = target.connects;
  attempt.way = ConnectWay::kRelay;
  attempt.target = &target;
  attempt.stage = Stage::kRelayConnecting;
  attempt.until = context_.clock.deadline_in(kRelayHandshakeTimeout);
  attempts_.push_back(std::move(attempt));
}

std::vector<pollfd> MeshConnector::polled() const {
  std::vector<pollfd> polled{{acceptor_.polled_fd(listener_.fd()), POLLIN, 0}};
  for (const MeshAttempt& a : attempts_) {
    const bool opens = a.stage == Stage::kConnecting || a.stage == Stage::kRelayConnecting;
    polled.push_back({a.socket.fd(), static_cast<short>(opens ? POLLOUT : POLLIN), 0});
  }
  return polled;
}

void MeshConnector::serve(const std::vector<pollfd>& polled) {
  for (std::size_t i = 0; i < attempts_.size(); ++i) {
    MeshAttempt& attempt = attempts_[i];
    if (polled[i + 1].revents == 0) continue;
    if (attempt.target != nullptr && !attempt.target->machine.needs_connection()) {
      attempt.stage = Stage::kFailed;  // another one was first
      continue;
    }
    try {
      serve(attempt);
    } catch (const std::exception& error) {
      if (!client_->handles(attempt, error)) throw;
      attempt.stage = Stage::kFailed;
    }
  }
  if (polled[0].revents != 0) accept_all();
}

void MeshConnector::accept_all() {
  for (std::size_t i = 0; i < kMaxUnprovenLinks; ++i) {
    Socket socket = acceptor_.accept(listener_.fd());
    if (!socket && errno == EMFILE) client_->on_no_files();
    if (!socket) return;
    prepare_stream(socket.fd());
    MeshAttempt attempt;
    attempt.socket = std::move(socket);
    attempt.until = context_.clock.deadline_in(kLinkHandshakeTimeout);
    attempts_.push_back(std::move(attempt));
  }
}

void MeshConnector::finish(MeshAttempt& attempt, int peer, std::uint32_t machine) {
  const int fd = attempt.socket.fd();
  if (machine == machine_digest() && !attempt.is_relayed()) do_not_pace(fd);
  if (resumes(context_)) {
    notice_silence(fd, context_.link_patience);
  } else if (context_.relay != nullptr) {
    keep_alive(fd, kRelayKeepAlive);  // routers forget idle ones
  }
  const LinkKeys keys = (attempt.outgoing ? connector_keys : acceptor_keys)(
      context_.secret, context_.prefix, attempt.hello, attempt.challenge);
  MeshTarget& target = target_of(peer, attempt.hello.stream);
  const Endpoint to = attempt.is_relayed() ? Endpoint{} : listening_peer(fd, attempt.hello);
  attempt.stage = Stage::kDone;
  if (!client_->use(attempt, target, keys)) return;
  if (!target.connects) target.to = to;
  if (attempt.is_relayed()) context_.relay->note_relayed(context_.group_rank(peer));
}

void MeshConnector::sweep() {
  const auto now = context_.clock.now();
  std::size_t unproven = 0;
  for (auto a = attempts_.rbegin(); a != attempts_.rend(); ++a) {  // the newest first
    const bool accepted = a->target == nullptr;
    if (!a->is_over() && (now >= a->until || (!accepted && !a->target->machine.needs_connection())))
      a->stage = Stage::kFailed;
    if (!a->is_over() && accepted && a->stage != Stage::kEstablishing &&
        ++unproven > kMaxUnprovenLinks)
      a->stage = Stage::kFailed;
    if (a->is_over() && !accepted) a->target->machine.schedule().end(a->way);
  }
  std::erase_if(attempts_, [](const MeshAttempt& a) { return a.is_over(); });
}

void MeshConnector::close() {
  attempts_.clear();
  listener_.close();
}

const MeshAttempt* MeshConnector::attempt_at(Stage stage, const MeshTarget* target) const {
  const auto found = std::ranges::find_if(attempts_, [&](const MeshAttempt& a) {
    return a.stage == stage && (target == nullptr || a.target == target);
  });
  return found == attempts_.end() ? nullptr : &*found;
}

}  // namespace backends
