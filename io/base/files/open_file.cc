// Implements the functions with open, fstat, poll and read.
#include "io/base/files/open_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>

#include "io/base/files/io_error.h"
#include "io/base/files/retry_on_eintr.h"
#include "io/base/files/system_error_text.h"
#include "io/base/time/deadline.h"

namespace io {
namespace {

// A file that exists but cannot be opened now (a failing disk, too many open files) is not missing:
// callers continue without missing files.
[[noreturn]] void fail_to_open(const std::string& path, int error) {
  if (struct stat found{}; error == ENXIO && stat(path.c_str(), &found) == 0)
    throw DataError(path + ": is " + (S_ISSOCK(found.st_mode) ? "a socket" : "a device") +
                    "; expected a file");
  const std::string text = "cannot open " + path + ": " + base::system_error_text(error);
  if (base::is_lack_of_resources(error)) throw LimitError(text);
  if (error == EIO || error == EINTR) throw Error(text);
  throw MissingFileError(text);
}

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using OwnedFile = std::unique_ptr<std::FILE, Close>;

[[noreturn]] void fail_as_too_long(const std::string& path, std::uint64_t max_bytes) {
  throw DataError(path + ": longer than " + std::to_string(max_bytes) +
                  " bytes, more than any such file has");
}

[[noreturn]] void fail_to_read(const std::string& path) {
  throw Error("cannot read " + path + ": " + base::system_error_text(errno));
}

OwnedFile open_run_file(const std::string& path, std::uint64_t max_bytes) {
  OpenedFile opened = open_regular_file(path, Links::kReject);
  OwnedFile file(fdopen(opened.descriptor.fd(), "rb"));
  if (!file) fail_to_open(path, errno);
  opened.descriptor.release();
  if (opened.bytes > max_bytes) fail_as_too_long(path, max_bytes);
  return file;
}

[[noreturn]] void refuse_kind(const std::string& path, mode_t mode) {
  throw DataError(
      path + (S_ISDIR(mode)
                  ? ": is a folder; expected a file"
                  : ": is not a regular file (a device or a pipe); copy its content to a file"));
}

struct stat status_of(int descriptor, const std::string& path) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) fail_to_read(path);
  return status;
}

bool is_null_device(const struct stat& status) {
  return S_ISCHR(status.st_mode) && status.st_rdev == makedev(1, 3);
}

bool has_no_name(int pipe) {
  struct statfs system {};
  return fstatfs(pipe, &system) == 0 && system.f_type == PIPEFS_MAGIC;
}

// Reads a pipe that is open in non-blocking mode.
std::string read_pipe(int pipe, const std::string& path, std::uint64_t max_bytes,
                      std::chrono::milliseconds time) {
  const base::Deadline deadline = base::deadline_in(time);
  std::string text;
  for (;;) {
    pollfd polled{pipe, POLLIN, 0};
    const int left = base::milliseconds_left(deadline);
    if (left == 0)
      throw Error("cannot read " + path + ": its writer has not ended after " +
                  std::to_string(time.count() / 1000) + " s, and has written " +
                  std::to_string(text.size()) + " bytes");
    if (poll(&polled, 1, left) <= 0) continue;
    char block[16384];
    const ssize_t got = read(pipe, block, sizeof block);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) fail_to_read(path);
    if (got == 0) break;
    text.append(block, static_cast<std::size_t>(got));
    if (text.size() > max_bytes) fail_as_too_long(path, max_bytes);
  }
  if (text.empty())
    throw DataError(path +
                    ": is a pipe in which nothing is left, since it can be read only once; copy "
                    "its content to a file");
  return text;
}

std::string read_all(std::FILE* file, const std::string& path, std::uint64_t max_bytes) {
  std::string text;
  char block[16384];
  for (std::size_t got; (got = std::fread(block, 1, sizeof block, file)) > 0;) {
    text.append(block, got);
    if (text.size() > max_bytes) fail_as_too_long(path, max_bytes);
  }
  if (std::ferror(file) != 0) fail_to_read(path);
  return text;
}

}  // namespace

OpenedFile open_regular_file(const std::string& path, Links links) {
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (links == Links::kReject ? O_NOFOLLOW : 0);
  base::Descriptor file(base::retry_on_eintr([&] { return open(path.c_str(), flags); }));
  if (!file && errno == ELOOP && links == Links::kReject)
    throw DataError(path + ": is a link; expected a plain file, as a run writes it");
  if (!file) fail_to_open(path, errno);
  struct stat status {};
  if (fstat(file.fd(), &status) != 0) fail_to_read(path);
  if (S_ISREG(status.st_mode)) return {std::move(file), static_cast<std::uint64_t>(status.st_size)};
  refuse_kind(path, status.st_mode);
}

OpenedFile open_file_or_pipe(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISFIFO(status.st_mode)) return open_regular_file(path);
  base::Descriptor pipe(
      base::retry_on_eintr([&] { return open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  if (!pipe) fail_to_open(path, errno);
  return {std::move(pipe), 0};
}

bool is_regular_file(const std::string& path) {
  std::error_code fault;
  const std::filesystem::file_status status = std::filesystem::status(path, fault);
  if (status.type() == std::filesystem::file_type::none)
    throw Error("cannot read " + path + ": " + fault.message());
  return std::filesystem::is_regular_file(status);
}

std::string read_small_file(const std::string& path, std::uint64_t max_bytes,
                            std::chrono::milliseconds pipe_time) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  const int descriptor = base::retry_on_eintr([&] { return open(path.c_str(), kFlags); });
  if (descriptor < 0) fail_to_open(path, errno);
  const OwnedFile file(fdopen(descriptor, "rb"));
  if (!file) {
    const int error = errno;
    close(descriptor);
    fail_to_open(path, error);
  }
  const struct stat status = status_of(descriptor, path);
  if (S_ISFIFO(status.st_mode) && has_no_name(descriptor))
    return read_pipe(descriptor, path, max_bytes, pipe_time);
  if (!S_ISREG(status.st_mode) && !is_null_device(status)) refuse_kind(path, status.st_mode);
  if (static_cast<std::uint64_t>(status.st_size) > max_bytes) fail_as_too_long(path, max_bytes);
  return read_all(file.get(), path, max_bytes);
}

std::string read_run_file(const std::string& path, std::uint64_t max_bytes) {
  return read_all(open_run_file(path, max_bytes).get(), path, max_bytes);
}

void for_each_run_line(const std::string& path, std::size_t max_line_bytes, std::uint64_t max_bytes,
                       const std::function<void(const std::string&)>& line) {
  const OwnedFile file = open_run_file(path, max_bytes);
  std::string text;
  std::uint64_t all = 0;
  char block[65536];
  for (std::size_t got; (got = std::fread(block, 1, sizeof block, file.get())) > 0;) {
    if ((all += got) > max_bytes) fail_as_too_long(path, max_bytes);
    for (std::string_view rest(block, got); !rest.empty();) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      text.append(rest.substr(0, std::min(end, max_line_bytes - text.size())));
      if (end == rest.size()) break;
      line(text);
      text.clear();
      rest.remove_prefix(end + 1);
    }
  }
  if (std::ferror(file.get()) != 0) fail_to_read(path);
  if (!text.empty()) line(text);
}

}  // namespace io
