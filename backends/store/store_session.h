// Connects to the store's server: one attempt, with the handshake.
#pragma once

#include <optional>
#include <string>

#include "backends/store/protocol/handshake.h"
#include "backends/store/protocol/session_machine.h"
#include "backends/store/tcp_socket.h"

namespace backends {

struct StoreSession {
  Socket socket;
  FrameParser parser;  // may hold frames that came behind the welcome
  Seals seals;
  Hello hello;  // as sent
};

// The servers other than this job's rank 0 that may listen at an address.
enum class OtherServers {
  kNone,       // any refusal is an error of this run
  kUnproved,   // none, but bytes may have been changed on the way: retry what is not proved
  kOnPort,     // another service or another job may use the port
  kAtAddress,  // the address may be that of an earlier run
};
enum class SessionFault { kNotReached, kUnknownServer, kUnproved, kOtherSecret, kOtherJob };

// The number of answers in a row without a proof of the job's secret after which the secret is
// assumed to be another one, and not changed bytes. If no other server may listen, the attempts
// end.
inline constexpr int kMaxUnprovedAnswers = 3;
class UnprovedAnswers {
 public:
  // The rule for the next attempt.
  OtherServers rule(OtherServers others) const {
    return others == OtherServers::kNone && count_ + 1 < kMaxUnprovedAnswers
               ? OtherServers::kUnproved
               : others;
  }
  void note(SessionFault fault) {
    const bool unproved = fault == SessionFault::kOtherSecret || fault == SessionFault::kUnproved;
    count_ = unproved ? count_ + 1 : 0;
  }

 private:
  int count_ = 0;
};

// Makes one attempt. Empty if the caller may retry (nothing listens yet, another service answers):
// `reason` and `fault` contain the cause. Throws AuthenticationError if the secrets differ and
// MismatchError if server and client disagree; if `others` may listen there, another secret or
// another job counts as a failed attempt instead.
[[nodiscard]] std::optional<StoreSession> open_session(const Endpoint& server, const Secret& secret,
                                                       Hello hello, Deadline deadline,
                                                       OtherServers others, std::string& reason,
                                                       SessionFault* fault = nullptr);

// The same over a connection to rank 0 in this process. Empty if it breaks.
[[nodiscard]] std::optional<StoreSession> open_own_session(Socket socket, const Secret& secret,
                                                           Hello hello, Deadline deadline,
                                                           std::string& reason);

// Returns the message for an answer that does not fit this secret.
std::string unproved_text(const Endpoint& server, const Secret& secret);

// Returns true if a server with this secret and job listens there.
[[nodiscard]] bool server_answers(const Endpoint& server, const Secret& secret, Hello hello,
                                  Deadline deadline);

// Writes all of `bytes` to a non-blocking socket; returns false if it breaks or the deadline
// passes.
[[nodiscard]] bool write_by(int fd, std::string_view bytes, Deadline deadline);

}  // namespace backends
