// Reports errors that leave a thread or a noexcept function: std::terminate() would end the process
// with SIGABRT and lines of the standard library.
#pragma once

namespace tools {

// From now on an uncaught std::bad_alloc, in whatever thread, ends the process with one line and
// kExitUnavailable. Others are errors inside the program, and abort as before.
void report_uncaught_errors();

}  // namespace tools
