// Defines the exit codes of the program, and maps errors to them. (`verify` maps any error to 2.)
#pragma once

#include <exception>
#include <span>
#include <stdexcept>
#include <string>

namespace tools {

inline constexpr int kExitOk = 0;
inline constexpr int kExitDifferent = 1;  // verify, doctor: a difference was found
inline constexpr int kExitUsage = 2;      // also verify's "trouble"
inline constexpr int kExitBadData = 65;
// Peer or rendezvous; memory; a CUDA device that fails or is out of memory.
inline constexpr int kExitUnavailable = 69;
inline constexpr int kExitInternal = 70;
inline constexpr int kExitCannotCreate = 73;
inline constexpr int kExitIo = 74;
inline constexpr int kExitPreempted = 75;  // the state is saved: run again
inline constexpr int kExitMismatch = 76;
inline constexpr int kExitAuthentication = 77;
inline constexpr int kExitConfiguration = 78;
inline constexpr int kExitNonFinite = 79;  // training has diverged: NaN or infinity
inline constexpr int kExitLeft = 80;       // this rank has left an elastic job, which continues

// Returns all codes, ascending, with their meaning for users: one line, no period.
struct ExitCode {
  int code;
  const char* meaning;
};
std::span<const ExitCode> exit_codes();

// The command line itself is invalid.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A signal asked for the stop; the exit code is 128 + its number.
struct StoppedError : std::runtime_error {
  explicit StoppedError(int number)
      : runtime_error("stopped by signal " + std::to_string(number)), signal(number) {}
  int signal;
};

int exit_code_of(const std::exception& error);
// Returns the text to print, on one line: the error's what(), or a description if that is not from
// this program. Control characters in foreign names and messages are made visible.
std::string text_of(const std::exception& error);

}  // namespace tools
