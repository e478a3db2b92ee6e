// Errors of the engine. engine/ and models/ throw them; tools/engine_main.cc catches them once.
#pragma once

#include <stdexcept>
#include <string>

namespace engine {

// The base of the family: an internal error unless a subclass says otherwise (exit code 70).
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Shapes do not match. The text names the layer and both shapes (exit code 78).
class ShapeError : public Error {
 public:
  using Error::Error;
};

// The engine cannot run a model, option or combination as requested (exit code 78).
class ModelError : public Error {
 public:
  using Error::Error;
};

// Data that contradicts the model: a label out of range, wrong image size (exit code 65).
class InputError : public Error {
 public:
  using Error::Error;
};

// Host memory is not available. The text states the size (exit code 69).
class MemoryError : public Error {
 public:
  using Error::Error;
};

// Replicas differ where they must be equal (exit code 76).
class DesyncError : public Error {
 public:
  using Error::Error;
};

// Values of a training run are no longer finite (exit code 79).
class NonFiniteError : public Error {
 public:
  using Error::Error;
};

// Throws Error("internal: " + what) if `condition` is false: a violated REQUIRES, never a user's
// mistake.
void require(bool condition, const char* what);

}  // namespace engine
