// Translates between the interface's exceptions and the library's own.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace engine::api {

// Carries an exception of a callback through the library.
struct CallbackFailure : std::exception {
  explicit CallbackFailure(std::exception_ptr thrown);
  const char* what() const noexcept override { return text.c_str(); }
  std::exception_ptr cause;
  std::string text;  // its what()
};

// Called in a handler: throws the interface's form of the exception being handled.
[[noreturn]] void rethrow_translated();

// Runs the body of a public function.
template <class Work>
decltype(auto) translated(Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (...) {
    rethrow_translated();
  }
}

// Runs a callback of the program.
template <class Callback, class... Arguments>
void call_out(const Callback& callback, Arguments&&... arguments) {
  try {
    callback(std::forward<Arguments>(arguments)...);
  } catch (...) {
    throw CallbackFailure(std::current_exception());
  }
}

}  // namespace engine::api
