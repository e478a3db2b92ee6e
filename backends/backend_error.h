// The errors of the communication layer. tools/engine_main.cc catches them and turns them into exit
// codes.
#pragma once

#include <stdexcept>
#include <string>

namespace backends {

class Error : public std::runtime_error {  // exit code 69 unless a subclass states another
 public:
  using std::runtime_error::runtime_error;
};

// A peer or the rendezvous is unavailable: missing, dead, or silent past the deadline (exit code
// 69).
class PeerError : public Error {
 public:
  using Error::Error;
};

// Another rank failed before, as the text says: a consequence of its failure, not a cause.
class LostPeerError : public PeerError {
 public:
  using PeerError::PeerError;
};

// The user asked to stop while the group was forming (exit code 128 + signal).
class CancelledError : public Error {
 public:
  using Error::Error;
};

// Ranks disagree on a collective or on the run's identity (exit code 76).
class MismatchError : public Error {
 public:
  using Error::Error;
};

// This rank stopped waiting for the others, because it was asked to stop (Group::interrupt()).
class InterruptedError : public PeerError {
 public:
  using PeerError::PeerError;
};

// Authentication failed (exit code 77).
class AuthenticationError : public Error {
 public:
  using Error::Error;
};

// An invalid address, backend name or environment (exit code 78).
class ConfigurationError : public Error {
 public:
  using Error::Error;
};

// Returns e.g. "rank 1 (host n7, pid 42) died: its connection closed; last activity: step 120".
inline std::string member_failure_text(const std::string& who, const std::string& cause,
                                       const std::string& activity) {
  return who + " " + cause + "; last activity: " + (activity.empty() ? "unknown" : activity);
}
// Returns the cause for a rank that has left without waiting for the others. `why` is its reason,
// or "".
inline std::string early_end_text(const std::string& why) {
  return "ended before the others" + (why.empty() ? "" : ": " + why);
}

// The cause that ended a group early, as every rank reports it.
struct GroupFailure {
  std::string text;       // member_failure_text() and the like
  bool mismatch = false;  // a rank has seen that calls differ, and `text` names them

  [[noreturn]] void raise(const std::string& context = "") const {
    if (mismatch) throw MismatchError(context + text);
    throw PeerError(context + text);
  }
};

// Returns the text as a further clause of a message; "" for none.
inline std::string after_semicolon(const std::string& text) {
  return text.empty() ? text : "; " + text;
}

}  // namespace backends
