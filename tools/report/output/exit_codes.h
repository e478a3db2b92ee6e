// Exit codes of the program and the one place that maps errors to them.
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
inline constexpr int kExitUnavailable =
    69;  // peer or rendezvous; memory; a CUDA device that fails or is out of memory
inline constexpr int kExitInternal = 70;
inline constexpr int kExitCannotCreate = 73;
inline constexpr int kExitIo = 74;
inline constexpr int kExitPreempted = 75;  // the state is saved: run again
inline constexpr int kExitMismatch = 76;
inline constexpr int kExitAuthentication = 77;
inline constexpr int kExitConfiguration = 78;
inline constexpr int kExitNonFinite = 79;  // training has diverged: NaN or infinity
inline constexpr int kExitLeft = 80;       // this rank has left an elastic job, which goes on

// Each of them, ascending, with its meaning for users: one line, no full stop.
struct ExitCode {
  int code;
  const char* meaning;
};
std::span<const ExitCode> exit_codes();

// The command line itself makes no sense.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A signal has asked for the end: 128 + its number.
struct StoppedError : std::runtime_error {
  explicit StoppedError(int number)
      : runtime_error("stopped by signal " + std::to_string(number)), signal(number) {}
  int signal;
};

int exit_code_of(const std::exception& error);
// What to print, on one line: its what(), or words where that is none of ours. Names and messages
// of others that are in it are made visible.
std::string text_of(const std::exception& error);

}  // namespace tools
