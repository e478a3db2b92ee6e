// Notices broken connections, and carries out what their machines decide.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "backends/backend_error.h"
#include "backends/transport/repair/link_patience.h"
#include "backends/transport/zmq/zmq_attempt.h"
#include "backends/transport/zmq/zmq_repair.h"
#include "io/base/files/system_error_text.h"

namespace backends {
namespace {

using std::chrono::milliseconds;
// Between looks at connections that no call uses. Their users notice a break at once.
constexpr milliseconds kZmqLookTime{100};
constexpr milliseconds kPollTime{20};

void take_connections(int listener) {
  const int unused = 0;
  setsockopt(listener, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof unused);
}

// libzmq's calls fail if a signal arrives, so signals go to the other threads.
void block_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

ZmqLinks::Repair::Repair(ZmqLinks& links, Ends& ends)
    : links_(links),
      ends_(ends),
      context_(ends.context()),
      looks_(static_cast<std::size_t>(links.size_)) {}

void ZmqLinks::Repair::run(const std::stop_token& stop) {
  block_signals();
  const InsideZmq inside;
  while (!stop.stop_requested() && !links_.abort_.is_aborted()) {
    try {
      check_links();
      rest(stop);
    } catch (const std::exception& error) {  // of the machine, e.g. no memory is left
      for (int peer = 0; peer < links_.size_; ++peer) {
        if (is_down(peer)) give_up(peer, error.what());
      }
    }
  }
  for (int peer = 0; peer < links_.size_; ++peer)
    ends_.end(peer).machine.end(LinkMachine::State::kEnded);
}

void ZmqLinks::Repair::check_links() {
  ends_.guard().count();
  for (int peer = 0; peer < links_.size_; ++peer) {
    if (peer == links_.rank_) continue;
    look_at(peer);
    if (is_down(peer)) check_down(peer);
  }
}

void ZmqLinks::Repair::check_down(int peer) {
  const auto now = context_.clock.now();
  LinkMachine& machine = ends_.end(peer).machine;
  if (machine.on_break(now)) begin(peer);
  report_break(peer, false);
  serve(peer);
  if (is_down(peer)) probe(peer);
  if (is_down(peer) && machine.on_time(now))
    give_up(peer, no_connection_text(
                      "no new connection with " +
                          (peer < links_.rank_ ? ends_.end(peer).peer.endpoint : name_of(peer)),
                      links_.link_patience_, context_.watch.reach_text(context_.group_rank(peer))));
}

// A caller that waits for the link finds the end itself.
void ZmqLinks::Repair::look_at(int peer) {
  Link& l = links_.link(peer);
  if (l.state != State::kUp) return;
  if (is_silent(l.connection.fd(), links_.link_patience_ / 3)) {
    looks_[static_cast<std::size_t>(peer)].silent = true;
    l.connection.end();
  }
  const std::unique_lock lock(l.mutex, std::try_to_lock);
  if (lock && l.state == State::kUp && l.connection.has_ended()) links_.mark_down(l);
}

void ZmqLinks::Repair::begin(int peer) {
  Link& l = links_.link(peer);
  if (l.listener >= 0) take_connections(l.listener);
  if (peer < links_.rank_) l.socket = ends_.make_socket();  // closes the old one
}

// libzmq does not tell that a connection was refused.
void ZmqLinks::Repair::probe(int peer) {
  if (peer > links_.rank_) return;
  Socket& probe = looks_[static_cast<std::size_t>(peer)].probe;
  const std::string& endpoint = ends_.end(peer).peer.endpoint;
  LinkMachine& machine = ends_.end(peer).machine;
  int error = 0;
  if (probe) {
    pollfd polled{probe.fd(), POLLOUT, 0};
    const bool ended = poll(&polled, 1, 0) > 0;
    if (!ended && !machine.schedule().is_past(ConnectWay::kProbe, context_.clock.now())) return;
    error = ended ? take_connect_error(probe.fd()) : 0;
    probe.close();
    machine.schedule().end(ConnectWay::kProbe);
  } else if (machine.begin(ConnectWay::kProbe, context_.clock.now())) {
    const std::string address = endpoint.substr(std::strlen("tcp://"));
    probe = start_connecting(parse_endpoint(address, "a rank's address"));
    error = probe ? 0 : errno;
    if (!probe) machine.schedule().end(ConnectWay::kProbe);
  }
  if (error == ECONNREFUSED && machine.on_refused())
    give_up(peer, refused_text(endpoint, name_of(peer)));
}

// ---- New connections.

void ZmqLinks::Repair::serve(int peer) {
  while (is_down(peer)) {
    const std::optional<Ends::Greeting> theirs = ends_.next_greeting(peer);
    if (!theirs) return ends_.connect(peer);
    resume(peer, *theirs);
  }
}

// Continues over the connection of the greetings, of which `theirs` is the peer's.
void ZmqLinks::Repair::resume(int peer, const Ends::Greeting& theirs) {
  Link& l = links_.link(peer);
  const std::unique_lock lock(l.mutex);
  const ReplayBuffer& kept = *l.replay;
  if (theirs.received < kept.begin() || theirs.received > kept.end())
    return give_up(peer, "it cannot continue: the peer has received " +
                             std::to_string(theirs.received) + " bytes of " +
                             std::to_string(kept.end()) + ", and those before " +
                             std::to_string(kept.begin()) + " are not kept");
  l.replay->acknowledge(theirs.received);
  report_break(peer, true);
  send_again(peer, theirs.received);
  if (l.listener >= 0) take_no_more_connections(l.listener);
  const auto lasted = ends_.end(peer).machine.on_established(context_.clock.now());
  if (context_.notice)
    context_.notice(restored_link_text(name_of(peer), lasted, kept.end() - theirs.received));
  looks_[static_cast<std::size_t>(peer)] = {};
  l.state = State::kUp;
}

// The peer has received all before `position`, where a message begins.
void ZmqLinks::Repair::send_again(int peer, std::uint64_t position) {
  Link& l = links_.link(peer);
  const auto take = [&](void* to, std::size_t bytes) {
    for (auto* at = static_cast<char*>(to); bytes > 0;) {
      iovec part{};
      (void)l.replay->parts_from(position, bytes, {&part, 1});
      std::memcpy(at, part.iov_base, part.iov_len);
      at += part.iov_len;
      position += part.iov_len;
      bytes -= part.iov_len;
    }
  };
  const auto send = [&](zmq::message_t message, zmq::send_flags flags) {
    // Without an effect if the connection has ended meanwhile.
    attempt_zmq([&] { return l.socket.send(message, flags | zmq::send_flags::dontwait); });
  };
  while (position < l.replay->end()) {
    KeptTag kept{};
    take(&kept, sizeof kept);
    const bool is_lane = kept.tag.kind >= kHeadKind + 2 && kept.tag.kind < kKinds;
    const std::size_t rest = kept.tag.kind == kFiller ? links_.filler_bytes() - sizeof kept.tag
                             : is_lane                ? 0
                                                      : kept.bytes;
    zmq::message_t first(sizeof kept.tag + rest);
    std::memset(first.data(), 0, first.size());
    std::memcpy(first.data(), &kept.tag, sizeof kept.tag);
    if (kept.tag.kind != kFiller) take(first.data<char>() + sizeof kept.tag, rest);
    send(std::move(first), is_lane ? zmq::send_flags::sndmore : zmq::send_flags::none);
    if (!is_lane) continue;
    zmq::message_t payload(kept.bytes);
    take(payload.data(), kept.bytes);
    send(std::move(payload), zmq::send_flags::none);
  }
}

void ZmqLinks::Repair::report_break(int peer, bool in_any_case) {
  if (!ends_.end(peer).machine.take_report(context_.clock.now(), in_any_case) || !context_.notice)
    return;
  const bool silent = looks_[static_cast<std::size_t>(peer)].silent;
  context_.notice(lost_link_text(name_of(peer),
                                 silent ? base::system_error_text(ETIMEDOUT) : "it was closed",
                                 links_.link_patience_));
}

void ZmqLinks::Repair::give_up(int peer, const std::string& why) {
  Link& l = links_.link(peer);
  l.failure = ": " + why;
  if (l.listener >= 0) take_no_more_connections(l.listener);
  ends_.end(peer).machine.end(LinkMachine::State::kGivenUp);
  l.state = State::kGivenUp;
}

void ZmqLinks::Repair::rest(const std::stop_token& stop) {
  if (links_.any_down()) return ends_.wait(kPollTime);
  ends_.guard().end_unproven();
  std::unique_lock lock(links_.repair_mutex_);
  links_.repair_wake_.wait_for(lock, stop, kZmqLookTime,
                               [this] { return links_.abort_.is_aborted() || links_.any_down(); });
}

}  // namespace backends
