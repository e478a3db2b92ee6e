// What the library throws, and what it has to say beside.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

#include "engine/version.h"

namespace engine::api {

// Everything that goes wrong is one of the classes below. what() is one line: what was found, what
// was expected, and often what to do. Exceptions of a program's own callbacks pass through the
// library as they are, and so does std::bad_alloc.
class ENGINE_API Error : public std::runtime_error {
 public:
  Error(int exit_code, const std::string& what);
  ~Error() override;
  // With which the program `engine` ends for such an error.
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// A value, option, address, backend, model or combination that makes no sense (78).
class ENGINE_API ConfigurationError : public Error {
 public:
  using Error::Error;
  ~ConfigurationError() override;
};

// A file or samples that are missing, damaged, or not what the model takes (65).
class ENGINE_API DataError : public Error {
 public:
  using Error::Error;
  ~DataError() override;
};

// Output that cannot be created (73), reading or writing that fails (74).
class ENGINE_API FileError : public Error {
 public:
  using Error::Error;
  ~FileError() override;
};

// Another rank or the rendezvous is missing, dead, or silent past the deadline; or another rank has
// failed for want of memory or of a device (69).
class ENGINE_API PeerError : public Error {
 public:
  using Error::Error;
  ~PeerError() override;
};

// GroupOptions::cancelled has said so while the group was forming (69).
class ENGINE_API CancelledError : public PeerError {
 public:
  using PeerError::PeerError;
  ~CancelledError() override;
};

// Memory, threads, open files or a device that cannot be had (69).
class ENGINE_API ResourceError : public Error {
 public:
  using Error::Error;
  ~ResourceError() override;
};

// Ranks call different collectives, have different options or data, or replicas differ (76).
class ENGINE_API MismatchError : public Error {
 public:
  using Error::Error;
  ~MismatchError() override;
};

// A rank has not proved that it knows the job's secret (77).
class ENGINE_API AuthenticationError : public Error {
 public:
  using Error::Error;
  ~AuthenticationError() override;
};

// The training has diverged: loss, gradient or a parameter is NaN or infinite (79).
class ENGINE_API NonFiniteError : public Error {
 public:
  using Error::Error;
  ~NonFiniteError() override;
};

// A fault of the library itself (70).
class ENGINE_API InternalError : public Error {
 public:
  using Error::Error;
  ~InternalError() override;
};

// Warnings and news, one line each: ranks that are missing or stall, a snapshot that was skipped,
// an option that changes nothing. `handler` is told them from now on, from any thread; it must not
// throw. Empty: "engine: TEXT" on stderr, as at the start. Of the process.
ENGINE_API void set_notice_handler(std::function<void(const std::string&)> handler);

}  // namespace engine::api
