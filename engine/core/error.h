// Errors of the engine. Thrown by engine/ and models/, caught once in tools/engine_main.cc.
#pragma once

#include <stdexcept>
#include <string>

namespace engine {

// Base of the family: an internal error unless a subclass says otherwise (exit code 70).
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Shapes that do not fit. The text names the layer and both shapes (exit code 78).
class ShapeError : public Error {
 public:
  using Error::Error;
};

// A model, option or combination that the engine cannot run as asked (exit code 78).
class ModelError : public Error {
 public:
  using Error::Error;
};

// Data that contradicts the model: a label out of range, wrong image size (exit code 65).
class InputError : public Error {
 public:
  using Error::Error;
};

// Memory of the host that cannot be had. The text says how much (exit code 69).
class MemoryError : public Error {
 public:
  using Error::Error;
};

// Replicas differ where they must be equal (exit code 76).
class DesyncError : public Error {
 public:
  using Error::Error;
};

// Numbers of a training are not finite any more (exit code 79).
class NonFiniteError : public Error {
 public:
  using Error::Error;
};

// Throws Error("internal: " + what) when `condition` is false: a broken REQUIRES, never a user's
// mistake.
void require(bool condition, const char* what);

}  // namespace engine
