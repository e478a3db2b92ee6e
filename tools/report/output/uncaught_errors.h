// Reports errors that leave a thread or a noexcept function: std::terminate() would end the process
// with SIGABRT and messages of the standard library.
#pragma once

namespace tools {

// From now on an uncaught std::bad_alloc, in any thread, ends the process with one line and
// kExitUnavailable. Others are bugs in the program, and abort as before.
void report_uncaught_errors();

}  // namespace tools
