// The client's half of the handshake.
#include "backends/store/store_session.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "backends/backend_error.h"

namespace backends {
namespace {

constexpr auto kHandshakeTime = std::chrono::seconds(5);

// The next frame, or nothing at the end of the stream or the deadline.
std::optional<Frame> read_frame(StoreSession& session, Deadline deadline, std::size_t limit) {
  for (;;) {
    if (std::optional<Frame> frame = session.parser.next(limit)) return frame;
    pollfd p{session.socket.fd(), POLLIN, 0};
    const int left = milliseconds_left(deadline);
    if (left == 0 || poll(&p, 1, left) <= 0) {
      if (left == 0 || errno != EINTR) return std::nullopt;
      continue;
    }
    char buffer[4096];
    const ssize_t n = recv(session.socket.fd(), buffer, sizeof buffer, 0);
    if (n > 0) {
      session.parser.append(buffer, static_cast<std::size_t>(n));
    } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
      return std::nullopt;
    }
  }
}

// Sends the hello and checks the server's proof. Returns the client's proof, or nothing with a
// reason. `wrong_secret` tells that a server answered, but not ours.
std::optional<std::string> greet(StoreSession& session, const Secret& secret, Hello& hello,
                                 Deadline deadline, bool& wrong_secret, std::string& reason) {
  hello.nonce = random_bytes(kNonceBytes);
  const std::string frame = hello_frame(hello);
  const std::string payload = frame.substr(5);
  reason = "the process listening there does not answer like an engine rendezvous";
  if (!write_by(session.socket.fd(), frame, deadline)) return std::nullopt;
  const std::optional<Frame> challenge = read_frame(session, deadline, kUnauthenticatedFrameBytes);
  if (!challenge) return std::nullopt;
  if (challenge->type == FrameType::kRefuse) {
    FrameReader in(challenge->payload);
    const auto kind = static_cast<RefusalKind>(in.u8());
    throw_refusal(kind, "refused by rank 0: " + in.text());
  }
  if (challenge->type != FrameType::kChallenge ||
      challenge->payload.size() != kNonceBytes + kMacBytes)
    return std::nullopt;
  const std::string nonce = challenge->payload.substr(0, kNonceBytes);
  wrong_secret = !equal_in_constant_time(challenge->payload.substr(kNonceBytes),
                                         server_proof(secret, payload, nonce));
  return client_proof(secret, payload, nonce);
}

}  // namespace

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

namespace {

// After the proof. True: welcome. False: to be tried again, or throws.
bool read_verdict(StoreSession& session, const Settings& settings, Deadline until, Doubt doubt,
                  std::string& reason, SessionFault& fault) {
  reason = "rank 0 closed the connection";
  std::optional<Frame> verdict = read_frame(session, until, kFrameBytes);
  if (verdict && verdict->type == FrameType::kAskSettings) {
    if (!write_by(session.socket.fd(), settings_frame(settings), until)) return false;
    verdict = read_frame(session, until, kFrameBytes);
  }
  if (!verdict) return false;
  if (verdict->type == FrameType::kWelcome) return true;
  if (verdict->type != FrameType::kRefuse && verdict->type != FrameType::kFatal) return false;
  FrameReader in(verdict->payload);
  const auto kind = static_cast<RefusalKind>(in.u8());
  const std::string text = in.text();
  const bool passed_over = (kind == RefusalKind::kOtherJob && doubt != Doubt::kNone) ||
                           (kind == RefusalKind::kStarted && doubt == Doubt::kAddress);
  if (!passed_over) throw_refusal(kind, text);
  reason = text;
  fault = SessionFault::kOtherJob;
  return false;
}

}  // namespace

std::optional<StoreSession> open_session(const Endpoint& server, const Secret& secret, Hello hello,
                                         Deadline deadline, Doubt doubt, std::string& reason,
                                         SessionFault* fault) {
  StoreSession session;
  SessionFault ignored{};
  SessionFault& kind = fault != nullptr ? *fault : ignored;
  const Deadline until = std::min(deadline, std::chrono::steady_clock::now() + kHandshakeTime);
  kind = SessionFault::kNobody;
  session.socket = connect_to(server, until, reason);
  if (!session.socket) return std::nullopt;
  kind = SessionFault::kStranger;
  bool proven = false;
  try {
    bool wrong_secret = false;
    const std::optional<std::string> proof =
        greet(session, secret, hello, until, wrong_secret, reason);
    if (!proof) return std::nullopt;
    // The proof is sent to a server without the secret, too: it gives nothing away, and rank 0 can
    // say who failed.
    if (!write_by(session.socket.fd(), FrameWriter(FrameType::kProof).bytes(*proof).finish(),
                  until))
      return std::nullopt;
    if (wrong_secret) {
      (void)read_frame(session, until, kUnauthenticatedFrameBytes);
      throw AuthenticationError("rank 0 at " + to_string(server) +
                                " does not have the secret of this rank (from " + secret.origin +
                                "); give all ranks the same ENGINE_SECRET or ENGINE_SECRET_FILE");
    }
    proven = true;
    if (read_verdict(session, hello.settings, until, doubt, reason, kind)) return session;
  } catch (const AuthenticationError& error) {
    if (doubt == Doubt::kNone) throw;
    reason = error.what();
    kind = SessionFault::kOtherSecret;
  } catch (const Error& error) {
    // Who has not proved to be of this job may say what it likes.
    if (doubt == Doubt::kNone || proven) throw;
    reason = error.what();
  } catch (const MalformedFrame&) {
    reason = "the process listening there does not speak this program's protocol";
  }
  return std::nullopt;
}

bool server_answers(const Endpoint& server, const Secret& secret, Hello hello, Deadline deadline) {
  std::string reason;
  StoreSession session;
  session.socket = connect_to(server, deadline, reason);
  if (!session.socket) return false;
  try {
    bool wrong_secret = false;
    return greet(session, secret, hello, deadline, wrong_secret, reason).has_value() &&
           !wrong_secret;
  } catch (const Error&) {
    return false;
  } catch (const MalformedFrame&) {
    return false;
  }
}

}  // namespace backends
