// Implements non-blocking connections, and the handshakes on them.
#include "backends/membership/agent_sockets.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "backends/open_files.h"
#include "backends/store/store_session.h"
#include "backends/store/tcp_socket.h"
#include "io/base/text/escape_text.h"

namespace backends {
namespace {

constexpr std::size_t kMaxWaiting = 64;  // messages for a connection that is being established
constexpr std::size_t kMaxIncoming = 4096;
// The limits of unauthenticated connections: in total, and from one address. Each uses a
// descriptor, of which a process may have few.
constexpr std::size_t kMaxUnproved = 128, kMaxUnprovedPerAddress = 64;
constexpr auto kRefusalInterval = std::chrono::seconds(10);
constexpr int kMaxRetries = 20;
constexpr auto kReopenInterval = std::chrono::milliseconds(20);

// Reads a numeric address; returns false for other text.
bool address_of(const Endpoint& to, sockaddr_storage& address, socklen_t& length) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(to.host.c_str(), std::to_string(to.port).c_str(), &hints, &list) != 0)
    return false;
  length = list->ai_addrlen;
  std::copy_n(reinterpret_cast<const char*>(list->ai_addr), length,
              reinterpret_cast<char*>(&address));
  freeaddrinfo(list);
  return true;
}

// The kernel retransmits lost data at growing intervals: if a link returns after an hour, the next
// retransmission may be minutes away. So the old connection fails, and a new one succeeds at once.
void fail_after(int fd, std::chrono::milliseconds patience) {
  const int ms = static_cast<int>(patience.count());
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

// This end sends nothing, so a silent host would go unnoticed.
constexpr KeepAlive kAgentKeepAlive{
    .idle_seconds = 30, .interval_seconds = 10, .max_unanswered = 3};

}  // namespace

AgentSockets::AgentSockets(Secret secret, Hello own, Events events,
                           std::chrono::milliseconds patience)
    : secret_(std::move(secret)),
      own_(std::move(own)),
      events_(std::move(events)),
      patience_(patience),
      acceptor_(events_.notice) {}

// ---- Outgoing connections.

// Returns false if nothing listens there.
bool AgentSockets::open(const Endpoint& to, Outgoing& out) {
  sockaddr_storage address{};
  socklen_t length = 0;
  out.session.reset();
  out.connection = {};
  out.connecting = true;
  out.standing = false;
  out.retry_at.reset();
  out.handshake_until = base::deadline_in(kHandshakeTimeout);
  if (!address_of(to, address, length)) return true;  // its silence will be detected
  out.connection.socket =
      Socket(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!out.connection.socket) return true;
  const int fd = out.connection.socket.fd();
  prepare_stream(fd);
  fail_after(fd, patience_);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0 && errno != EINPROGRESS)
    return errno != ECONNREFUSED;
  out.session.emplace(secret_, own_, random_bytes(kNonceBytes), to_string(to));
  return true;
}

void AgentSockets::send(const Endpoint& to, const MembershipMessage& message) {
  const auto [place, is_new] = outgoing_.try_emplace({to.host, to.port});
  Outgoing& out = place->second;
  if (message.to.is_set()) out.ids.insert(message.to);
  if (is_new && !open(to, out)) return refuse(to);
  if (!out.connecting) return put(out, message);
  if (out.waiting.size() >= kMaxWaiting) out.waiting.pop_front();
  out.waiting.push_back(message);
}

void AgentSockets::put(Outgoing& out, const MembershipMessage& message) {
  if (out.connection.out.size() > 4 * kFrameBytes) return;  // the peer does not read
  out.connection.out += out.seals.to_server.close(membership_frame(message));
  (void)out.connection.flush();  // a broken connection is detected when it is read
}

void AgentSockets::refuse(const Endpoint& to) {
  auto node = outgoing_.extract({to.host, to.port});
  if (node.empty()) return;
  for (Incoming& in : incoming_)
    in.is_of_dead = in.is_of_dead || node.mapped().ids.contains(in.from);
  for (const MemberId& id : node.mapped().ids) events_.refused(id);
  events_.no_agent(to, false);
}

void AgentSockets::drop(const Endpoint& to) { outgoing_.erase({to.host, to.port}); }

// A connection has broken: a new one shows at once if its process is gone. A process that is just
// ending may still accept the new one and then break it, so the next attempt is a little later.
void AgentSockets::ended(const Endpoint& to) {
  const auto place = outgoing_.find({to.host, to.port});
  if (place == outgoing_.end()) return;
  Outgoing& out = place->second;
  if (!out.connecting) out.retries = 0;
  if (++out.retries > kMaxRetries) {
    outgoing_.erase(place);  // until there is another message to send
    return;
  }
  if (out.connecting && !base::has_passed(out.reopened + kReopenInterval)) {
    out.connection = {};
    out.session.reset();
    out.retry_at = base::deadline_in(kReopenInterval);
    return;
  }
  out.reopened = base::deadline_in({});
  if (!open(to, out)) refuse(to);
}

void AgentSockets::retry() {
  std::vector<Endpoint> due;
  for (const auto& entry : outgoing_) {
    if (entry.second.retry_at && base::has_passed(*entry.second.retry_at))
      due.push_back(endpoint_of(entry));
  }
  for (const Endpoint& to : due) ended(to);
}

void AgentSockets::serve(const Endpoint& to, short events) {
  const auto place = outgoing_.find({to.host, to.port});
  if (place == outgoing_.end()) return;
  Outgoing& out = place->second;
  out.standing = true;
  const int fd = out.connection.socket.fd();
  int error = 0;
  socklen_t length = sizeof error;
  if ((events & (POLLERR | POLLHUP)) != 0) {
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error == ECONNREFUSED) return refuse(to);
  }
  std::string bytes, end;
  if ((events & (POLLIN | POLLERR | POLLHUP)) != 0) end = out.connection.receive(bytes);
  if (out.session) {
    out.session->received(bytes);
    out.connection.out += out.session->take_output();
  }
  if (end.empty()) end = out.connection.flush();
  if (out.session) {
    on_session(to, out);
    if (!outgoing_.contains({to.host, to.port})) return;
  }
  if (!end.empty()) ended(to);
}

void AgentSockets::on_session(const Endpoint& to, Outgoing& out) {
  using SessionState = SessionMachine::State;
  switch (out.session->state()) {
    case SessionState::kRunning:
      return;
    case SessionState::kWelcome:
      out.seals = out.session->seals();
      out.connecting = false;
      out.session.reset();
      for (const MembershipMessage& m : std::exchange(out.waiting, {})) put(out, m);
      return;
    case SessionState::kNoStore:
      events_.no_agent(to, true);
      break;
    case SessionState::kOtherSecret:
      events_.turned_away(to, RefusalKind::kAuthentication, unproved_text(to, secret_));
      break;
    case SessionState::kRefused: {
      const auto& [kind, text] = out.session->refusal();
      // Ignore a peer that has not authenticated: it is not part of this job.
      if (out.session->is_proved()) events_.turned_away(to, kind, base::escape_text(text));
      break;
    }
  }
  outgoing_.erase({to.host, to.port});
}

// ---- Incoming connections.

// Closes the oldest unauthenticated connection if their number has reached a limit: in total, or
// from `address`. A member authenticates within moments.
void AgentSockets::make_room(const std::string& address) {
  const auto drop_oldest = [this](std::size_t most, const auto& counts) {
    if (static_cast<std::size_t>(std::ranges::count_if(incoming_, counts)) < most) return;
    incoming_.erase(std::ranges::find_if(incoming_, counts));
  };
  const auto is_unproved = [](const Incoming& in) { return !in.link.is_open(); };
  drop_oldest(kMaxUnprovedPerAddress,
              [&](const Incoming& in) { return is_unproved(in) && in.address == address; });
  drop_oldest(kMaxUnproved, is_unproved);
}

// Prints one line per kRefusalInterval: a rejected process may retry thousands of times.
void AgentSockets::notice_refusal(const std::string& why) {
  if (!events_.notice) return;
  if (!base::has_passed(next_refusal_notice_)) {
    ++unnoticed_refusals_;
    return;
  }
  next_refusal_notice_ = base::deadline_in(kRefusalInterval);
  const std::size_t before = std::exchange(unnoticed_refusals_, 0);
  events_.notice("refused a connection: " + why +
                 (before == 0 ? "" : " (and " + std::to_string(before) + " more before)"));
}

void AgentSockets::accept_from(const Socket& listener) {
  for (int i = 0; i < 64; ++i) {
    Socket socket = acceptor_.accept(listener.fd());
    if (!socket) return;
    prepare_stream(socket.fd());
    keep_alive(socket.fd(), kAgentKeepAlive);
    const std::string peer = peer_text(socket.fd()), address = peer.substr(0, peer.rfind(':'));
    make_room(address);
    if (incoming_.size() >= kMaxIncoming) return;
    incoming_.push_back(
        {{}, {secret_, own_, random_bytes(kNonceBytes), peer}, address, {}, {}, false});
    incoming_.back().connection.socket = std::move(socket);
    incoming_.back().handshake_until = base::deadline_in(kHandshakeTimeout);
  }
}

bool AgentSockets::serve(Incoming& in, short events) {
  std::string bytes, end;
  if (in.is_of_dead) return false;
  if ((events & ~POLLOUT) != 0) end = in.connection.receive(bytes);
  in.link.received(bytes);
  while (const std::optional<Frame> frame = in.link.next()) {
    try {
      const MembershipMessage message = read_membership_frame(*frame);
      in.from = message.from;
      events_.received(message);
    } catch (const MalformedFrame&) {
      return false;
    }
  }
  in.connection.out += in.link.take_output();
  if (end.empty()) end = in.connection.flush();
  if (!in.link.has_ended()) return end.empty();
  if (!in.link.refusal().empty() && !in.connection.close_after) notice_refusal(in.link.refusal());
  // Keep it open until the other side has read the reason, and closes.
  in.connection.close_after = true;
  return end.empty();
}

// ---- The loop.

AgentSockets::Polled AgentSockets::sockets_to_poll(int wake) {
  Polled polled{.fds = {{wake, POLLIN, 0}}};
  for (const Socket& listener : listeners_)
    polled.fds.push_back({acceptor_.polled_fd(listener.fd()), POLLIN, 0});
  for (const auto& entry : outgoing_) {
    const Outgoing& out = entry.second;
    if (!out.connection.socket) continue;
    const bool writes = !out.standing || !out.connection.out.empty();
    polled.targets.push_back(endpoint_of(entry));
    polled.fds.push_back(
        {out.connection.socket.fd(), static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0});
  }
  for (auto in = incoming_.begin(); in != incoming_.end(); ++in) {
    polled.sources.push_back(in);
    polled.fds.push_back(
        {in->connection.socket.fd(),
         static_cast<short>(in->connection.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
  }
  return polled;
}

void AgentSockets::serve_ready(const Polled& polled) {
  auto at = polled.fds.begin() + 1 + static_cast<std::ptrdiff_t>(listeners_.size());
  for (const Endpoint& to : polled.targets) {
    if (at->revents != 0) serve(to, at->revents);
    ++at;
  }
  for (const auto& in : polled.sources) {
    const bool is_late = !in->link.is_open() && base::has_passed(in->handshake_until);
    if ((at->revents != 0 && !serve(*in, at->revents)) || is_late) incoming_.erase(in);
    ++at;
  }
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    if (polled.fds[i + 1].revents != 0) accept_from(listeners_[i]);
  }
}

void AgentSockets::drop_late() {
  std::vector<Endpoint> silent;
  std::erase_if(outgoing_, [&](const auto& entry) {
    const Outgoing& out = entry.second;
    const bool is_late = out.connecting && base::has_passed(out.handshake_until);
    if (is_late && out.standing) silent.push_back(endpoint_of(entry));
    return is_late;
  });
  for (const Endpoint& to : silent) events_.no_agent(to, true);
}

void AgentSockets::poll_once(const base::WakeEvent& wake, Deadline until) {
  Polled polled = sockets_to_poll(wake.fd());
  for (const auto& [to, out] : outgoing_)
    if (out.retry_at) until = std::min(until, *out.retry_at);
  if (acceptor_.is_paused()) until = std::min(until, acceptor_.pause_end());
  if (poll(polled.fds.data(), polled.fds.size(), milliseconds_left(until)) < 0) return;
  if (polled.fds[0].revents != 0) wake.clear();
  serve_ready(polled);
  retry();
  drop_late();
}

void AgentSockets::flush(Deadline until) {
  for (auto& [to, out] : outgoing_) {
    while (!out.connecting && !out.connection.out.empty() && !base::has_passed(until)) {
      if (!out.connection.flush().empty()) break;
      if (out.connection.out.empty()) break;
      pollfd p{out.connection.socket.fd(), POLLOUT, 0};
      poll(&p, 1, milliseconds_left(until));
    }
  }
}

}  // namespace backends
