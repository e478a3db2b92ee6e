// Looks at the descriptors and at stdio's own memory of errors.
#include "tools/report/standard_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>

#include "io/base/io_error.h"

namespace tools {

void open_standard_streams() {
  bool output = true;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    if (fd == STDOUT_FILENO) output = false;
    [[maybe_unused]] const int opened = open("/dev/null", O_RDWR);  // the lowest free one: fd
  }
  if (!output) throw io::Error("standard output is closed: redirect it to /dev/null to have none");
}

void check_standard_output() {
  errno = 0;
  std::cout.flush();  // stdio's, as the streams are synchronized
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  const std::string cause = errno != 0 ? std::string(": ") + std::strerror(errno) : "";
  throw io::Error("cannot write to standard output" + cause);
}

}  // namespace tools
