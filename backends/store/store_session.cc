// Runs the client's handshake on a socket.
#include "backends/store/store_session.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "backends/backend_error.h"
#include "io/base/files/transient_error.h"
#include "io/base/text/escape_text.h"
#include "io/base/time/deadline.h"

namespace backends {
namespace {

using State = SessionMachine::State;

// Sends the machine's output and passes it the bytes that arrive, once. Returns false if the
// connection is over or the deadline passed.
bool poll_once(int fd, SessionMachine& machine, Deadline deadline) {
  if (!write_by(fd, machine.take_output(), deadline)) return false;
  pollfd p{fd, POLLIN, 0};
  const int left = milliseconds_left(deadline);
  if (left == 0) return false;
  if (poll(&p, 1, left) <= 0) return errno == EINTR;
  char buffer[4096];
  const ssize_t n = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
  if (n > 0) machine.received({buffer, static_cast<std::size_t>(n)});
  return n > 0 || (n < 0 && base::is_transient(errno));
}

// Why a machine that runs on gets no welcome.
std::string silence_of(const SessionMachine& machine, Deadline until) {
  if (machine.is_proved()) return "rank 0 closed the connection";
  // The kernel accepts connections also for a process that is stopped.
  return base::has_passed(until)
             ? "the process listening there accepts connections but does not answer: it may be "
               "stopped, or be no engine job"
             : "the process listening there does not answer like an engine rendezvous";
}

// Throws rank 0's refusal, if no other server could accept this rank. Errors of a server that has
// not authenticated do not concern this job.
void check_refusal(const SessionMachine& machine, OtherServers others) {
  const auto& [refusal, text] = machine.refusal();
  bool may_retry = others != OtherServers::kNone;
  if (machine.is_proved() && refusal != RefusalKind::kAuthentication) {
    const bool at_address = others == OtherServers::kAtAddress;
    may_retry =
        (refusal == RefusalKind::kOtherJob && (at_address || others == OtherServers::kOnPort)) ||
        (refusal == RefusalKind::kStarted && at_address);
  }
  if (!may_retry) throw_refusal(refusal, text);
}

}  // namespace

std::string unproved_text(const Endpoint& server, const Secret& secret) {
  return "the process at " + to_string(server) +
         " has not proved that it has the secret of this one (from " + secret.origin +
         "): it has another one, or bytes were changed or repeated on the way; give all ranks the "
         "same ENGINE_SECRET or ENGINE_SECRET_FILE";
}

bool write_by(int fd, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
    pollfd p{fd, POLLOUT, 0};
    const int left = milliseconds_left(deadline);
    if (left == 0 || (poll(&p, 1, left) <= 0 && errno != EINTR)) return false;
  }
  return true;
}

std::optional<StoreSession> open_session(const Endpoint& server, const Secret& secret, Hello hello,
                                         Deadline deadline, OtherServers others,
                                         std::string& reason, SessionFault* fault) {
  SessionFault ignored{};
  SessionFault& kind = fault != nullptr ? *fault : ignored;
  const Deadline until = std::min(deadline, base::deadline_in(kHandshakeTimeout));
  kind = SessionFault::kNotReached;
  Socket socket = connect_to(server, until, reason);
  if (!socket) return std::nullopt;
  kind = SessionFault::kUnknownServer;
  SessionMachine machine(secret, hello, random_bytes(kNonceBytes), peer_text(socket.fd()));
  while (machine.state() == State::kRunning && poll_once(socket.fd(), machine, until)) {
  }
  switch (machine.state()) {
    case State::kWelcome:
      return StoreSession{std::move(socket), std::move(machine.parser()),
                          std::move(machine.seals()), std::move(hello)};
    case State::kRunning:
      reason = silence_of(machine, until);
      return std::nullopt;
    case State::kNoStore:
      reason = "the process listening there does not speak this program's protocol";
      return std::nullopt;
    case State::kOtherSecret: {
      // Lets rank 0 read the proof, and report this rank.
      (void)poll_once(socket.fd(), machine, until);
      reason = unproved_text(server, secret);
      if (others == OtherServers::kNone) throw AuthenticationError(reason);
      kind = SessionFault::kOtherSecret;
      return std::nullopt;
    }
    case State::kRefused:
      break;
  }
  const auto& [refusal, text] = machine.refusal();
  check_refusal(machine, others);
  reason = base::escape_text(text);
  kind = refusal == RefusalKind::kAuthentication ? SessionFault::kOtherSecret
         : machine.is_proved()                   ? SessionFault::kOtherJob
                                                 : SessionFault::kUnproved;
  return std::nullopt;
}

std::optional<StoreSession> open_own_session(Socket socket, const Secret& secret, Hello hello,
                                             Deadline deadline, std::string& reason) {
  SessionMachine machine(secret, hello, random_bytes(kNonceBytes), "this process");
  while (machine.state() == State::kRunning && poll_once(socket.fd(), machine, deadline)) {
  }
  if (machine.state() == State::kWelcome)
    return StoreSession{std::move(socket), std::move(machine.parser()), std::move(machine.seals()),
                        std::move(hello)};
  if (machine.state() == State::kRefused) check_refusal(machine, OtherServers::kNone);
  reason = silence_of(machine, deadline);
  return std::nullopt;
}

bool server_answers(const Endpoint& server, const Secret& secret, Hello hello, Deadline deadline) {
  std::string reason;
  const Socket socket = connect_to(server, deadline, reason);
  if (!socket) return false;
  SessionMachine machine(secret, std::move(hello), random_bytes(kNonceBytes),
                         peer_text(socket.fd()));
  while (machine.state() == State::kRunning && !machine.is_proved() &&
         poll_once(socket.fd(), machine, deadline)) {
  }
  return machine.is_proved();
}

}  // namespace backends
