// Connecting to the store's server: one attempt, with the handshake.
#pragma once

#include <optional>
#include <string>

#include "backends/store/handshake.h"
#include "backends/store/tcp_socket.h"

namespace backends {

struct StoreSession {
  Socket socket;
  FrameParser parser;  // may hold frames that came behind the welcome
};

// What else than this job's rank 0 may be at an address.
enum class Doubt {
  kNone,     // nothing: whatever is wrong there is this run's fault
  kPort,     // another service or another job may have the port
  kAddress,  // the address may be a leftover, or of the run before
};
enum class SessionFault { kNobody, kStranger, kOtherSecret, kOtherJob };

// One attempt. Empty when it may be tried again (nobody listens yet, the wrong service answers):
// then `reason` says why, and `fault` what kind it is. Throws AuthenticationError when the secrets
// differ and MismatchError when server and client disagree; where there is doubt, another secret or
// another job is a reason to try again instead.
[[nodiscard]] std::optional<StoreSession> open_session(const Endpoint& server, const Secret& secret,
                                                       Hello hello, Deadline deadline, Doubt doubt,
                                                       std::string& reason,
                                                       SessionFault* fault = nullptr);

// Whether a server that proves itself with this secret and job answers there.
[[nodiscard]] bool server_answers(const Endpoint& server, const Secret& secret, Hello hello,
                                  Deadline deadline);

// Writes all of `bytes` to a non-blocking socket; false when it breaks or the deadline passes.
[[nodiscard]] bool write_by(int fd, std::string_view bytes, Deadline deadline);

}  // namespace backends
