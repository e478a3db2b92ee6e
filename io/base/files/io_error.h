// Errors of files, data and configuration. tools/engine_main.cc catches them and turns them into
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

// A file's contents are wrong: bad magic, truncated, corrupt, out of range (exit code 65). The text
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

// The file has a format of a later version of the program, and may be intact (exit code 65).
class LaterFormatError : public DataError {
 public:
  using DataError::DataError;
};

// A limit of the process or the host is reached: open files, memory (exit code 69).
class LimitError : public Error {
 public:
  using Error::Error;
};

// Output cannot be created: the folder does not exist, no permission, no space (exit code 73).
class CannotCreateError : public Error {
 public:
  using Error::Error;
};

// A key or value of the configuration is invalid (exit code 78; unknown flags are 2).
class ConfigError : public Error {
 public:
  using Error::Error;
};

}  // namespace io
