// Checks the descriptors and stdio's error state.
#include "tools/report/output/standard_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "io/base/files/io_error.h"
#include "io/base/files/retry_on_eintr.h"
#include "io/base/files/system_error_text.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "tools/report/output/console_output.h"

namespace tools {
namespace {

// stdio forgets why it failed. What is written is incomplete, and one end of a line more does not
// change that.
int asked_fault() noexcept {
  return base::retry_on_eintr([] { return write(STDOUT_FILENO, "\n", 1); }) < 0 ? errno : 0;
}

int output_fault() noexcept {
  if (const int fault = console_fault(); fault != 0) return fault;
  return asked_fault();
}

}  // namespace

void open_standard_streams() {
  bool output = true;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    if (fd == STDOUT_FILENO) output = false;
    // The lowest free descriptor: fd.
    [[maybe_unused]] const int opened = open("/dev/null", O_RDWR);
  }
  if (!output) throw io::Error("standard output is closed: redirect it to /dev/null to have none");
}

bool standard_output_failed() noexcept { return std::ferror(stdout) != 0 || console_fault() != 0; }

void print_output(std::string_view lines) {
  static const bool terminal = isatty(STDOUT_FILENO) == 1;
  const std::string shown = terminal ? base::visible_lines(lines) : std::string(lines);
  std::fwrite(shown.data(), 1, shown.size(), stdout);
}

void check_standard_output() {
  flush_standard_output();  // includes std::cout, because the streams are synchronized
  wait_for_console(1);
  if (!standard_output_failed()) return;
  const int fault = output_fault();
  std::string cause = fault != 0 ? ": " + base::system_error_text(fault) : "";
  if (fault == ETIMEDOUT)
    cause = ": its reader has accepted nothing for " +
            base::number_text("%g s", kConsolePatienceSeconds);
  throw io::Error("cannot write to standard output" + cause);
}

}  // namespace tools
