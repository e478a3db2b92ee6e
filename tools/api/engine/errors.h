// The exceptions that the library throws, and the handler of its notices.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

#include "engine/version.h"

namespace engine::api {

// The base class: the library reports every failure by one of the classes below. what() is one
// line: what was found, what was expected, and often what to do. Exceptions of a program's own
// callbacks pass through the library unchanged, and so does std::bad_alloc.
class ENGINE_API Error : public std::runtime_error {
 public:
  Error(int exit_code, const std::string& what);
  ~Error() override;
  // Returns the exit code of the program `engine` for such an error.
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// A value, option, address, backend, model or combination is invalid (78).
class ENGINE_API ConfigurationError : public Error {
 public:
  using Error::Error;
  ~ConfigurationError() override;
};

// A file or samples are missing, damaged, or do not fit the model (65).
class ENGINE_API DataError : public Error {
 public:
  using Error::Error;
  ~DataError() override;
};

// Output cannot be created (73), or reading or writing fails (74).
class ENGINE_API FileError : public Error {
 public:
  using Error::Error;
  ~FileError() override;
};

// Another rank or the rendezvous is missing, dead, or silent past the deadline; or another rank has
// failed for lack of memory or of a device (69).
class ENGINE_API PeerError : public Error {
 public:
  using Error::Error;
  ~PeerError() override;
};

// GroupOptions::cancelled returned true while the group was forming (69).
class ENGINE_API CancelledError : public PeerError {
 public:
  using PeerError::PeerError;
  ~CancelledError() override;
};

// Memory, threads, open files or a device are not available (69).
class ENGINE_API ResourceError : public Error {
 public:
  using Error::Error;
  ~ResourceError() override;
};

// Ranks call different collectives, or have different options, data or replicas (76).
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

// The training has diverged: the loss, a gradient or a parameter is NaN or infinite (79).
class ENGINE_API NonFiniteError : public Error {
 public:
  using Error::Error;
  ~NonFiniteError() override;
};

// A bug in the library itself (70).
class ENGINE_API InternalError : public Error {
 public:
  using Error::Error;
  ~InternalError() override;
};

// Sets the handler of warnings and notices, one line each: ranks that are missing or stall, a
// checkpoint that was skipped, an option without effect. `handler` may be called from any thread
// and must not throw. An empty one restores the default: "engine: TEXT" on stderr. Applies to the
// whole process.
ENGINE_API void set_notice_handler(std::function<void(const std::string&)> handler);

}  // namespace engine::api
