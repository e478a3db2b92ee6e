// Restores broken connections of ZmqLinks, in a thread of their own.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "backends/backend_error.h"
#include "backends/transport/socket/link_patience.h"
#include "backends/transport/zmq/zmq_attempt.h"
#include "backends/transport/zmq/zmq_set_up.h"
#include "io/base/files/system_error_text.h"

namespace backends {
namespace {

using std::chrono::milliseconds;
// Between looks at connections that no call uses. Their users notice a break at once.
constexpr milliseconds kLookTime{100};
constexpr milliseconds kPollTime{20};
// The listener has noticed the break by then as well, and takes connections.
constexpr milliseconds kFirstWait{150};
// A break is reported if the peer's process has not proved gone by then.
constexpr milliseconds kReportTime{1000};
constexpr milliseconds kProbePause{1000};

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

void ZmqLinks::SetUp::repair(const std::stop_token& stop) {
  block_signals();
  const InsideZmq inside;
  repairing_ = true;
  while (!stop.stop_requested() && !links_.abort_.is_aborted()) {
    try {
      check_links();
      rest(stop);
    } catch (const std::exception& error) {  // of the machine, e.g. no memory is left
      for (int peer = 0; peer < size_; ++peer) {
        if (links_.link(peer).state == State::kDown) give_up(peer, error.what());
      }
    }
  }
}

void ZmqLinks::SetUp::check_links() {
  guard_.count();
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    look_at(peer);
    if (links_.link(peer).state != State::kDown) continue;
    const auto now = context_.clock.now();
    if (!end(peer).repair.broken) begin_repair(peer);
    if (now >= end(peer).repair.report) report_break(peer);
    serve(peer);
    if (links_.link(peer).state == State::kDown) probe(peer);
    if (links_.link(peer).state == State::kDown && now >= end(peer).repair.until)
      give_up(peer, "no new connection with " +
                        (peer < rank_ ? end(peer).peer.endpoint : name_of(peer)) + " " +
                        within_patience_text(links_.link_patience_) +
                        after_semicolon(context_.watch.reach_text(context_.group_rank(peer))));
  }
}

// A caller that waits for the link finds the end itself.
void ZmqLinks::SetUp::look_at(int peer) {
  Link& l = links_.link(peer);
  if (l.state != State::kUp) return;
  if (is_silent(l.connection.fd(), links_.link_patience_ / 3)) {
    end(peer).silent = true;
    l.connection.end();
  }
  const std::unique_lock lock(l.mutex, std::try_to_lock);
  if (lock && l.state == State::kUp && l.connection.has_ended()) links_.mark_down(l);
}

void ZmqLinks::SetUp::begin_repair(int peer) {
  const auto now = context_.clock.now();
  End& e = end(peer);
  e.stands = false;
  e.tries = 0;
  e.until = base::deadline_in(kFirstWait);
  e.repair = {};
  e.repair.broken = true;
  e.repair.since = now;
  e.repair.report = now + kReportTime;
  e.repair.until = now + links_.link_patience_;
  Link& l = links_.link(peer);
  if (l.listener >= 0) take_connections(l.listener);
  if (peer < rank_) l.socket = make_socket();  // closes the old one
}

// libzmq does not report that a connection was refused.
void ZmqLinks::SetUp::probe(int peer) {
  Repair& repair = end(peer).repair;
  const bool is_due = base::has_passed(repair.next_probe);
  if (peer > rank_) return;
  int error = 0;
  if (repair.probe) {
    pollfd polled{repair.probe.fd(), POLLOUT, 0};
    if (poll(&polled, 1, 0) == 0 && !is_due) return;
    error = polled.revents == 0 ? 0 : take_connect_error(repair.probe.fd());
    repair.probe.close();
  } else if (is_due) {
    repair.next_probe = base::deadline_in(kProbePause);
    const std::string address = end(peer).peer.endpoint.substr(std::strlen("tcp://"));
    repair.probe = start_connecting(parse_endpoint(address, "a rank's address"));
    error = repair.probe ? 0 : errno;
  }
  if (error == ECONNREFUSED)
    give_up(peer, end(peer).peer.endpoint + " refuses connections: the process of " +
                      name_of(peer) + " has ended");
}

// Continues over the connection of the greetings, of which `theirs` is the peer's.
void ZmqLinks::SetUp::resume(int peer, const Greeting& theirs) {
  Link& l = links_.link(peer);
  const std::unique_lock lock(l.mutex);
  const ReplayBuffer& kept = *l.replay;
  if (theirs.received < kept.begin() || theirs.received > kept.end())
    return give_up(peer, "it cannot continue: the peer has received " +
                             std::to_string(theirs.received) + " bytes of " +
                             std::to_string(kept.end()) + ", and those before " +
                             std::to_string(kept.begin()) + " are not kept");
  l.replay->acknowledge(theirs.received);
  report_break(peer);
  send_again(peer, theirs.received);
  if (l.listener >= 0) take_no_more_connections(l.listener);
  if (context_.notice)
    context_.notice(restored_link_text(name_of(peer), context_.clock.now() - end(peer).repair.since,
                                       kept.end() - theirs.received));
  end(peer).repair = {};
  end(peer).silent = false;
  stands(peer);
  l.state = State::kUp;
}

// The peer has received all before `position`, where a message begins.
void ZmqLinks::SetUp::send_again(int peer, std::uint64_t position) {
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

void ZmqLinks::SetUp::report_break(int peer) {
  Repair& repair = end(peer).repair;
  if (repair.reported) return;
  repair.reported = true;
  if (context_.notice)
    context_.notice(lost_link_text(
        name_of(peer), end(peer).silent ? base::system_error_text(ETIMEDOUT) : "it was closed",
        links_.link_patience_));
}

void ZmqLinks::SetUp::give_up(int peer, const std::string& why) {
  Link& l = links_.link(peer);
  l.failure = ": " + why;
  if (l.listener >= 0) take_no_more_connections(l.listener);
  stands(peer);
  l.state = State::kGivenUp;
}

void ZmqLinks::SetUp::rest(const std::stop_token& stop) {
  if (links_.any_down()) return wait(kPollTime);
  guard_.end_unproven();
  std::unique_lock lock(links_.repair_mutex_);
  links_.repair_wake_.wait_for(lock, stop, kLookTime,
                               [this] { return links_.abort_.is_aborted() || links_.any_down(); });
}

}  // namespace backends
