// The client's half of the handshake.
#include "backends/store/store_session.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "backends/backend_error.h"
#include "io/base/deadline.h"
#include "io/base/visible_text.h"

namespace backends {
namespace {

// The next frame, or nothing at the end of the stream or the deadline.
std::optional<Frame> read_frame(StoreSession& session, Deadline deadline, std::size_t limit) {
  for (;;) {
    if (std::optional<Frame> frame = session.parser.next(limit)) {
      session.seals.to_client.open(*frame);
      return frame;
    }
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
// reason. `wrong_secret`: the server answered, but does not have our secret; otherwise what follows
// the proof is sealed.
std::optional<std::string> exchange_hello(StoreSession& session, const Secret& secret, Hello& hello,
                                          Deadline deadline, bool& wrong_secret,
                                          std::string& reason) {
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
    throw_refusal(kind, "the process at " + peer_text(session.socket.fd()) +
                            ", which has not proved that it is rank 0, refuses: " + in.text());
  }
  if (challenge->type != FrameType::kChallenge ||
      challenge->payload.size() != kNonceBytes + kMacBytes)
    return std::nullopt;
  const std::string nonce = challenge->payload.substr(0, kNonceBytes);
  wrong_secret = !equal_in_constant_time(challenge->payload.substr(kNonceBytes),
                                         server_proof(secret, payload, nonce));
  if (!wrong_secret) session.seals = make_seals(secret, payload, nonce);
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

// Reads the answer to the proof: true for a welcome, false if the caller may try again; else
// throws.
bool read_answer(StoreSession& session, const Settings& settings, Deadline until,
                 OtherServers others, std::string& reason, SessionFault& fault) {
  reason = "rank 0 closed the connection";
  std::optional<Frame> answer = read_frame(session, until, kFrameBytes + kSealBytes);
  if (answer && answer->type == FrameType::kAskSettings) {
    const std::string frame = session.seals.to_server.close(settings_frame(settings));
    if (!write_by(session.socket.fd(), frame, until)) return false;
    answer = read_frame(session, until, kFrameBytes + kSealBytes);
  }
  if (!answer) return false;
  if (answer->type == FrameType::kWelcome) return true;
  if (answer->type != FrameType::kRefuse && answer->type != FrameType::kFatal) return false;
  FrameReader in(answer->payload);
  const auto kind = static_cast<RefusalKind>(in.u8());
  const std::string text = base::visible_text(in.text());
  const bool may_retry = (kind == RefusalKind::kOtherJob && others != OtherServers::kNone) ||
                         (kind == RefusalKind::kStarted && others == OtherServers::kAtAddress);
  if (!may_retry) throw_refusal(kind, text);
  reason = text;
  fault = SessionFault::kOtherJob;
  return false;
}

}  // namespace

std::optional<StoreSession> open_session(const Endpoint& server, const Secret& secret, Hello hello,
                                         Deadline deadline, OtherServers others,
                                         std::string& reason, SessionFault* fault) {
  StoreSession session;
  SessionFault ignored{};
  SessionFault& kind = fault != nullptr ? *fault : ignored;
  const Deadline until = std::min(deadline, base::deadline_in(kHandshakeTimeout));
  kind = SessionFault::kNotReached;
  session.socket = connect_to(server, until, reason);
  if (!session.socket) return std::nullopt;
  kind = SessionFault::kUnknownServer;
  bool proven = false;
  try {
    bool wrong_secret = false;
    const std::optional<std::string> proof =
        exchange_hello(session, secret, hello, until, wrong_secret, reason);
    if (!proof) return std::nullopt;
    // Also sent to a server without the secret: it reveals nothing, and rank 0 can report who
    // failed.
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
    if (read_answer(session, hello.settings, until, others, reason, kind)) return session;
  } catch (const AuthenticationError& error) {
    if (others == OtherServers::kNone) throw;
    reason = error.what();
    kind = SessionFault::kOtherSecret;
  } catch (const Error& error) {
    // Errors of a server that has not authenticated are not this job's.
    if (others == OtherServers::kNone || proven) throw;
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
    return exchange_hello(session, secret, hello, deadline, wrong_secret, reason).has_value() &&
           !wrong_secret;
  } catch (const Error&) {
    return false;
  } catch (const MalformedFrame&) {
    return false;
  }
}

}  // namespace backends
