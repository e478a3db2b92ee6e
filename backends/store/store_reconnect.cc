// Implements the attempts to continue a session.
#include "backends/store/store_reconnect.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "io/base/files/transient_error.h"
#include "io/base/text/escape_text.h"

namespace backends {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPause = std::chrono::milliseconds(200);         // between attempts
constexpr auto kConnectTime = std::chrono::milliseconds(1500);  // the kernel sends SYN twice

}  // namespace

StoreReconnect::StoreReconnect(Endpoint server, Secret secret, Hello hello)
    : server_(std::move(server)), secret_(std::move(secret)), hello_(std::move(hello)) {}

void StoreReconnect::update(MemberMachine& member) {
  if (!member.wants_connection()) {
    if (socket_) end(member);
    return;
  }
  const bool starts_again = session_ && member.wants_second_attempt(Clock::now());
  if (starts_again) {
    session_.reset();
    socket_.close();
  } else if (socket_ && base::has_passed(until_)) {
    end(member);
  }
  if (!socket_ && (starts_again || base::has_passed(next_))) start(member);
}

void StoreReconnect::start(MemberMachine& member) {
  next_ = base::deadline_in(kPause);
  until_ = base::deadline_in(kConnectTime);
  socket_ = start_connecting(server_);
  if (!socket_ && errno == ECONNREFUSED) member.attempt_refused();
}

void StoreReconnect::end(MemberMachine& member) {
  session_.reset();
  socket_.close();
  member.attempt_failed();
}

pollfd StoreReconnect::polled() const {
  const bool sends = !session_ || !out_.empty();
  return {socket_.fd(), static_cast<short>((session_ ? POLLIN : 0) | (sends ? POLLOUT : 0)), 0};
}

Socket StoreReconnect::serve(short revents, MemberMachine& member) {
  if (!socket_ || revents == 0) return {};
  // The old connection has spoken again in the meantime: the session continues there.
  if (!member.wants_connection()) {
    end(member);
    return {};
  }
  if (session_) {
    receive(member);
  } else {
    on_connected(member);
  }
  if (!session_) return {};
  switch (session_->state()) {
    case SessionMachine::State::kRunning:
      if (!send_output()) end(member);
      return {};
    case SessionMachine::State::kWelcome: {
      member.continued(std::move(session_->parser()), std::move(session_->seals()),
                       session_->peer_received(), Clock::now());
      session_.reset();
      return std::move(socket_);
    }
    case SessionMachine::State::kRefused:
      if (session_->is_proved())
        member.attempt_rejected(base::escape_text(session_->refusal().second));
      break;
    default:  // not rank 0's store, or bytes were changed on the way
      break;
  }
  end(member);
  return {};
}

void StoreReconnect::on_connected(MemberMachine& member) {
  const int error = take_connect_error(socket_.fd());
  if (error == 0) {
    member.attempt_accepted(Clock::now());
    until_ = base::deadline_in(kHandshakeTimeout);
    ++hello_.attempt;
    hello_.received = member.received_frames();
    session_ = std::make_unique<SessionMachine>(secret_, hello_, random_bytes(kNonceBytes),
                                                to_string(server_));
    out_.clear();
    return;
  }
  end(member);
  if (error == ECONNREFUSED) member.attempt_refused();
}

void StoreReconnect::receive(MemberMachine& member) {
  char buffer[4096];
  const ssize_t n = recv(socket_.fd(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (n > 0) {
    member.attempt_answered();
    session_->received({buffer, static_cast<std::size_t>(n)});
  } else if (n == 0 || !base::is_transient(errno)) {
    end(member);
  }
}

bool StoreReconnect::send_output() {
  out_ += session_->take_output();
  while (!out_.empty()) {
    const ssize_t n = send(socket_.fd(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) return base::is_transient(errno);
    out_.erase(0, static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace backends
