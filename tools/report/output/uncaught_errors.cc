// Handles uncaught errors without any allocation.
#include "tools/report/output/uncaught_errors.h"

#include <unistd.h>

#include <exception>
#include <new>
#include <string_view>

#include "tools/report/output/exit_codes.h"

namespace tools {
namespace {

std::terminate_handler handler_before = nullptr;

[[noreturn]] void on_terminate() {
  if (std::current_exception()) {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      constexpr std::string_view kLine = "engine: error: out of memory: an allocation failed\n";
      [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, kLine.data(), kLine.size());
      _exit(kExitUnavailable);
    } catch (...) {
      handler_before();
    }
  }
  handler_before();
  _exit(kExitInternal);  // a terminate handler must not return
}

}  // namespace

void report_uncaught_errors() {
  const std::terminate_handler before = std::set_terminate(&on_terminate);
  if (before != &on_terminate) handler_before = before;
}

}  // namespace tools
