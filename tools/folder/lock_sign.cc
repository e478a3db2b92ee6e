// Reads and writes "HOST PID\n" and a modification time.
#include "tools/folder/lock_sign.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "backends/identity/host_identity.h"
#include "io/base/files/io_error.h"
#include "io/base/files/retry_on_eintr.h"
#include "io/base/files/system_error_text.h"
#include "io/base/machine/process_state.h"

namespace tools {
namespace {

// The file is untrusted data.
LockHolder parsed(std::string_view line) {
  const auto blank = line.find(' ');
  if (blank == std::string_view::npos) return {};
  LockHolder holder{std::string(line.substr(0, blank)), 0};
  for (char& c : holder.host)
    if (static_cast<unsigned char>(c) < 0x21 || static_cast<unsigned char>(c) > 0x7E) c = '?';
  for (const char c : line.substr(blank + 1)) {
    if (c < '0' || c > '9' || holder.pid > 1'000'000'000) break;
    holder.pid = holder.pid * 10 + (c - '0');
  }
  return holder;
}

}  // namespace

bool LockHolder::is_here() const { return host == backends::host_name(); }

bool LockHolder::is_gone() const {
  return pid == getpid() || (kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH);
}

bool LockHolder::is_stopped() const { return base::is_stopped(static_cast<pid_t>(pid)); }

std::string LockHolder::text() const { return "process " + std::to_string(pid) + " on " + host; }

LockSign lock_sign(int fd, const std::string& path) {
  char text[512];
  const ssize_t length = base::retry_on_eintr([&] { return pread(fd, text, sizeof text - 1, 0); });
  struct stat status {};
  if (length < 0 || fstat(fd, &status) != 0)
    throw io::Error("cannot look at " + path + ": " + base::system_error_text(errno));
  return {parsed({text, static_cast<std::size_t>(length)}), status.st_mtim};
}

std::optional<LockSign> lock_sign(const std::string& path) {
  const int fd = base::retry_on_eintr(
      [&] { return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); });
  if (fd < 0 && errno == ENOENT) return std::nullopt;
  if (fd < 0) throw io::Error("cannot look at " + path + ": " + base::system_error_text(errno));
  try {
    const LockSign sign = lock_sign(fd, path);
    close(fd);
    return sign;
  } catch (...) {
    close(fd);
    throw;
  }
}

void write_lock_sign(int fd, const std::string& path) {
  const std::string text = backends::host_name() + " " + std::to_string(getpid()) + "\n";
  int error = 0;
  for (std::size_t done = 0; error == 0 && done < text.size();) {
    const ssize_t n = base::retry_on_eintr([&] {
      return pwrite(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    });
    if (n < 0) error = errno;
    if (n > 0) done += static_cast<std::size_t>(n);
  }
  // Truncate last, or other processes would see a file without a holder.
  if (error == 0 &&
      base::retry_on_eintr([&] { return ftruncate(fd, static_cast<off_t>(text.size())); }) != 0)
    error = errno;
  if (error != 0)
    throw io::CannotCreateError("cannot write " + path + ": " + base::system_error_text(error));
}

}  // namespace tools
