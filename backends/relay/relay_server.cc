// Implements the relay's loop.
#include "backends/relay/relay_server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "io/base/files/system_error_text.h"
#include "io/base/files/transient_error.h"
#include "io/base/time/deadline.h"

namespace backends {
namespace {

constexpr std::uint64_t kStopEvent = 0, kListenerEvent = 1;
constexpr int kEventsPerPoll = 256, kAcceptsPerPoll = 64;
constexpr auto kSweepInterval = std::chrono::milliseconds(250);
constexpr auto kRefusalNoticeInterval = std::chrono::seconds(10);
// For the bytes that a broken connection has sent and the other end has not read.
constexpr auto kLastBytesTime = std::chrono::seconds(30);

std::string key_of(const RelayHello& hello, RelayEnd end) {
  return std::string(hello.pair, kMacBytes) + (end == RelayEnd::kAcceptor ? "a" : "c");
}

std::string pair_text(const RelayHello& hello) {
  const std::string job = job_of(hello);
  return (job.empty() ? "a job without id" : "job " + job) + ": ranks " +
         std::to_string(std::min(hello.from, hello.to)) + " and " +
         std::to_string(std::max(hello.from, hello.to));
}

}  // namespace

RelayServer::RelayServer(RelayServerOptions options)
    : options_(std::move(options)),
      endpoint_(local_endpoint(options_.listener.fd())),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      scratch_(kRelayBufferBytes),
      acceptor_(options_.notice, "the relay ") {
  bound_buffers(options_.listener.fd());  // inherited by its connections
  if (!epoll_)
    throw PeerError("cannot make an event descriptor: " + base::system_error_text(errno));
  epoll_event stop{.events = EPOLLIN, .data = {.u64 = kStopEvent}},
      listener{.events = EPOLLIN, .data = {.u64 = kListenerEvent}};
  if (epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, stop_.fd(), &stop) != 0 ||
      epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, options_.listener.fd(), &listener) != 0)
    throw PeerError("cannot watch the relay's port: " + base::system_error_text(errno));
  thread_ = std::thread([this] { run(); });
}

RelayServer::~RelayServer() {
  stop_.wake();
  thread_.join();
}

void RelayServer::run() {
  std::vector<epoll_event> events(kEventsPerPoll);
  for (;;) {
    const bool expecting = !accepting_ || refusals_ > 0 || !links_.empty();
    const int ready = epoll_wait(epoll_.fd(), events.data(), kEventsPerPoll,
                                 expecting ? milliseconds_left(next_sweep_) : -1);
    for (int i = 0; i < ready; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      const LinkId id = event.data.u64;  // a copy: the struct is packed
      if (id == kStopEvent) return;
      if (id == kListenerEvent) {
        accept_all();
      } else if (const auto found = links_.find(id); found != links_.end()) {
        serve(found->second, event.events);
      }
    }
    if (base::has_passed(next_sweep_)) sweep();
    for (const LinkId id : closed_) links_.erase(id);
    closed_.clear();
  }
}

void RelayServer::serve(Link& link, std::uint32_t events) {
  if (!link.socket || link.broken) return;  // since an earlier event of this poll
  if (link.stage != Stage::kJoined) return receive_message(link);
  if ((events & EPOLLOUT) != 0) flush(*link.partner);
  if (!link.socket || link.broken) return;
  if ((events & EPOLLIN) != 0 && (link.watched & EPOLLIN) != 0) pass(link);
  if (link.socket && (events & (EPOLLERR | EPOLLHUP)) != 0) break_off(link);
}

// ---- From a new connection to its proof.

void RelayServer::accept_all() {
  for (int i = 0; i < kAcceptsPerPoll; ++i) {
    Socket socket = acceptor_.accept(options_.listener.fd());
    if (!socket) {
      if (!acceptor_.is_paused()) return;
      accepting_ = false;
      epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, options_.listener.fd(), nullptr);
      return;
    }
    prepare_stream(socket.fd());
    keep_alive(socket.fd(), kRelayKeepAlive);
    Link link;
    link.id = next_id_++;
    link.address = peer_text(socket.fd());
    link.source = link.address.substr(0, link.address.rfind(':'));
    link.socket = std::move(socket);
    link.until = base::deadline_in(kRelayHandshakeTimeout);
    make_room(link.source);
    const LinkId id = link.id;
    unproven_.insert(id);
    Link& kept = links_.emplace(id, std::move(link)).first->second;
    epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
    kept.watched = EPOLLIN;
    if (epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, kept.socket.fd(), &event) != 0) close(kept);
  }
}

// Closes the oldest unproven connection of this source, or of all, if there are too many.
void RelayServer::make_room(const std::string& source) {
  Link* oldest_of_source = nullptr;
  std::size_t of_source = 0;
  for (const LinkId id : unproven_) {
    Link& link = links_.at(id);
    if (link.source == source && of_source++ == 0) oldest_of_source = &link;
  }
  if (of_source >= kMaxUnprovenPerSource) {
    refuse(*oldest_of_source, "too many unproven connections of one address");
  } else if (unproven_.size() >= kMaxUnprovenAtRelay) {
    refuse(links_.at(*unproven_.begin()), "too many unproven connections");
  }
}

void RelayServer::receive_message(Link& link) {
  const std::size_t wanted = link.stage == Stage::kHello   ? sizeof(RelayHello)
                             : link.stage == Stage::kProof ? kMacBytes
                                                           : 1;
  char buffer[sizeof(RelayHello)];
  const ssize_t n = recv(link.socket.fd(), buffer, wanted - link.in.size(), MSG_DONTWAIT);
  if (n < 0 && base::is_transient(errno)) return;
  if (n <= 0) return close(link);
  if (link.stage == Stage::kWaiting) return refuse(link, "it sent bytes before it was joined");
  link.in.append(buffer, static_cast<std::size_t>(n));
  if (link.in.size() < wanted) return;
  if (link.stage == Stage::kHello) {
    on_hello(link);
  } else {
    on_proof(link);
  }
}

void RelayServer::on_hello(Link& link) {
  std::memcpy(&link.hello, link.in.data(), sizeof link.hello);
  link.in.clear();
  if (link.hello.magic != kRelayMagic || link.hello.version != kRelayVersion ||
      (link.hello.end != RelayEnd::kAcceptor && link.hello.end != RelayEnd::kConnector))
    return refuse(link, "it is not a rank of this version");
  link.challenge = make_relay_challenge(options_.secret, link.hello);
  link.stage = Stage::kProof;
  if (!send_at_once(link.socket.fd(),
                    {reinterpret_cast<const char*>(&link.challenge), sizeof link.challenge}))
    close(link);
}

void RelayServer::on_proof(Link& link) {
  const bool proven = equal_in_constant_time(
      link.in, relay_rank_proof(options_.secret, link.hello, link.challenge));
  link.in.clear();
  if (!proven) return refuse(link, "it does not know the secret");
  const std::size_t count = links_.size() - closed_.size() - unproven_.size();
  if (count >= options_.max_links)
    return refuse(link, "the relay has " + std::to_string(count) + " connections, its limit");
  unproven_.erase(link.id);
  await_partner(link);
}

void RelayServer::await_partner(Link& link) {
  const RelayEnd other =
      link.hello.end == RelayEnd::kAcceptor ? RelayEnd::kConnector : RelayEnd::kAcceptor;
  const std::string own = key_of(link.hello, link.hello.end);
  // A rank that connects again has abandoned its earlier connection. If it was joined, this relay
  // and the other end may not know of its break yet.
  for (const auto* connections : {&waiting_, &joined_}) {
    if (const auto earlier = connections->find(own); earlier != connections->end())
      close(links_.at(earlier->second));
  }
  link.stage = Stage::kWaiting;
  link.until = base::deadline_in(options_.pairing_timeout);
  waiting_[own] = link.id;
  const auto found = waiting_.find(key_of(link.hello, other));
  if (found == waiting_.end()) return;
  Link& partner = links_.at(found->second);
  waiting_.erase(found);
  waiting_.erase(own);
  if (other == RelayEnd::kAcceptor) {
    join(partner, link);
  } else {
    join(link, partner);
  }
}

// ---- Joined pairs.

void RelayServer::join(Link& acceptor, Link& connector) {
  acceptor.partner = &connector;
  connector.partner = &acceptor;
  for (Link* link : {&acceptor, &connector}) {
    link->stage = Stage::kJoined;
    joined_[key_of(link->hello, link->hello.end)] = link->id;
    link->joined_at = std::chrono::steady_clock::now();
  }
  if (options_.report)
    options_.report(pair_text(acceptor.hello) + " are joined (" + acceptor.address + ", " +
                    connector.address + ")");
  // The acceptor first: it then waits for what the connector sends.
  if (!send_at_once(acceptor.socket.fd(), {&kRelayJoined, 1}) ||
      !send_at_once(connector.socket.fd(), {&kRelayJoined, 1}))
    close(acceptor);
}

// Passes on what `from` has sent, as much as one buffer. REQUIRES: nothing is pending.
void RelayServer::pass(Link& from) {
  const ssize_t n = recv(from.socket.fd(), scratch_.data(), scratch_.size(), MSG_DONTWAIT);
  if (n < 0 && base::is_transient(errno) && !from.broken) return;
  if (n <= 0) return end_direction(from);
  Link& to = *from.partner;
  if (to.broken) return;  // it has no reader
  from.passed += static_cast<std::uint64_t>(n);
  const auto count = static_cast<std::size_t>(n);
  const ssize_t sent = send(to.socket.fd(), scratch_.data(), count, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && !base::is_transient(errno)) return break_off(to);
  if (sent == n) return;
  const auto done = static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
  from.pending.assign(scratch_.data() + done, count - done);
  watch(from);
  watch(to);
}

void RelayServer::flush(Link& from) {
  if (from.pending.empty()) return;
  Link& to = *from.partner;
  const ssize_t sent =
      send(to.socket.fd(), from.pending.data(), from.pending.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && !base::is_transient(errno)) return break_off(to);
  from.pending.erase(0, static_cast<std::size_t>(std::max<ssize_t>(sent, 0)));
  if (!from.pending.empty()) return;
  from.pending.shrink_to_fit();
  watch(from);
  watch(to);
  if (from.broken) pass_rest(from);
}

void RelayServer::pass_rest(Link& from) {
  while (from.socket && !from.ended && from.pending.empty()) pass(from);
}

// `from` sends no more: the partner sees the end of the stream, and may still send.
void RelayServer::end_direction(Link& from) {
  from.ended = true;
  if (from.partner->ended) return close(from);
  if (!from.partner->broken) ::shutdown(from.partner->socket.fd(), SHUT_WR);
  watch(from);
}

// The connection is gone: what it had sent is still passed on, what the partner sends is dropped.
void RelayServer::break_off(Link& link) {
  if (link.broken) return;
  if (link.partner->broken) return close(link);
  link.broken = true;
  link.until = base::deadline_in(kLastBytesTime);
  epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, link.socket.fd(), nullptr);
  link.partner->pending.clear();
  watch(*link.partner);
  pass_rest(link);
}

// Watches for what can be done: reading while nothing is pending, writing while something is.
void RelayServer::watch(Link& link) {
  if (link.broken || !link.socket) return;
  std::uint32_t wanted = 0;
  if (!link.ended && link.pending.empty()) wanted |= EPOLLIN;
  if (!link.partner->pending.empty()) wanted |= EPOLLOUT;
  if (wanted == link.watched) return;
  link.watched = wanted;
  epoll_event event{.events = wanted, .data = {.u64 = link.id}};
  epoll_ctl(epoll_.fd(), EPOLL_CTL_MOD, link.socket.fd(), &event);
}

// ---- Ends.

void RelayServer::refuse(Link& link, const std::string& why) {
  ++refusals_;
  last_refusal_ = link.address + ": " + why;
  close(link);
  notice_refusals();
}

void RelayServer::close(Link& link) {
  if (!link.socket) return;
  if (link.stage == Stage::kWaiting) waiting_.erase(key_of(link.hello, link.hello.end));
  if (link.stage == Stage::kJoined) report_end(link);
  for (Link* end : {&link, link.partner}) {
    if (end == nullptr || !end->socket) continue;
    unproven_.erase(end->id);
    if (end->stage == Stage::kJoined) joined_.erase(key_of(end->hello, end->hello.end));
    end->socket.close();  // and leaves epoll
    closed_.push_back(end->id);
  }
}

void RelayServer::report_end(const Link& link) const {
  if (!options_.report) return;
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f", base::seconds_since(link.joined_at));
  options_.report(pair_text(link.hello) + " ended after " + seconds +
                  " s: " + std::to_string(link.passed) + " bytes from rank " +
                  std::to_string(link.hello.from) + ", " + std::to_string(link.partner->passed) +
                  " from rank " + std::to_string(link.partner->hello.from));
}

void RelayServer::notice_refusals() {
  if (refusals_ == 0 || !base::has_passed(next_notice_)) return;
  next_notice_ = base::deadline_in(kRefusalNoticeInterval);
  if (options_.notice)
    options_.notice("the relay rejected " + std::to_string(refusals_) +
                    (refusals_ == 1 ? " connection: " : " connections, the last: ") +
                    last_refusal_);
  refusals_ = 0;
}

void RelayServer::sweep() {
  next_sweep_ = base::deadline_in(kSweepInterval);
  for (auto& [id, link] : links_) {
    if (!link.socket || (link.stage == Stage::kJoined && !link.broken)) continue;
    if (!base::has_passed(link.until)) continue;
    if (link.is_unproven()) {
      refuse(link, "no proof within " + std::to_string(kRelayHandshakeTimeout.count()) + " s");
    } else {
      close(link);
    }
  }
  notice_refusals();
  if (accepting_ || acceptor_.is_paused()) return;
  accepting_ = true;
  epoll_event listener{.events = EPOLLIN, .data = {.u64 = kListenerEvent}};
  epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, options_.listener.fd(), &listener);
}

}  // namespace backends
