// Errors of files, data and configuration. Caught in tools/engine_main.cc, which turns them into
// exit codes.
#pragma once

#include <stdexcept>
#include <string>

namespace io {

class Error
    : public std::runtime_error {  // an I/O error unless a subclass says otherwise (exit code 74)
 public:
  using std::runtime_error::runtime_error;
};

// A file's content is wrong: bad magic, truncated, corrupt, out of range (exit code 65). The text
// names the file.
class DataError : public Error {
 public:
  using Error::Error;
};

// A file cannot be opened for reading: missing or not permitted (exit code 65 for data, checkpoints
// and weights).
class MissingFileError : public DataError {
 public:
  using DataError::DataError;
};

// Output cannot be created: no such folder, no permission, no space (exit code 73).
class CannotCreateError : public Error {
 public:
  using Error::Error;
};

// A key or value of the configuration that makes no sense (exit code 78; unknown flags are 2).
class ConfigError : public Error {
 public:
  using Error::Error;
};

}  // namespace io
