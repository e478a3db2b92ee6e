// open, fstat and read.
#include "io/base/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "io/base/io_error.h"
#include "io/base/retried.h"
#include "io/base/system_error_text.h"

namespace io {
namespace {

// A file that is there, but cannot be opened now (a disk that fails, too many open files), is not
// missing: callers go on without what is missing.
[[noreturn]] void fail_to_open(const std::string& path, int error) {
  const std::string text = "cannot open " + path + ": " + base::system_error_text(error);
  if (error == EIO || error == EMFILE || error == ENFILE || error == ENOMEM || error == EINTR)
    throw Error(text);
  throw MissingFileError(text);
}

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using OwnedFile = std::unique_ptr<std::FILE, Close>;

std::string read_all(std::FILE* file, const std::string& path, std::uint64_t most_bytes) {
  std::string text;
  char block[16384];
  for (std::size_t got; (got = std::fread(block, 1, sizeof block, file)) > 0;) {
    text.append(block, got);
    if (text.size() > most_bytes)
      throw DataError(path + ": longer than " + std::to_string(most_bytes) +
                      " bytes, more than any such file has");
  }
  if (std::ferror(file) != 0)
    throw Error("cannot read " + path + ": " + base::system_error_text(errno));
  return text;
}

}  // namespace

OpenedFile open_regular_file(const std::string& path) {
  const int descriptor =
      base::retried([&] { return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (descriptor < 0) fail_to_open(path, errno);
  struct stat status {};
  if (fstat(descriptor, &status) != 0) {
    const int error = errno;
    close(descriptor);
    throw Error("cannot read " + path + ": " + base::system_error_text(error));
  }
  if (S_ISREG(status.st_mode)) return {descriptor, static_cast<std::uint64_t>(status.st_size)};
  close(descriptor);
  throw DataError(
      path + (S_ISDIR(status.st_mode)
                  ? ": is a folder; expected a file"
                  : ": is not a regular file (a device or a pipe); copy its content to a file"));
}

bool is_regular_file(const std::string& path) {
  std::error_code fault;
  const std::filesystem::file_status status = std::filesystem::status(path, fault);
  if (status.type() == std::filesystem::file_type::none)
    throw Error("cannot read " + path + ": " + fault.message());
  return std::filesystem::is_regular_file(status);
}

std::string read_small_file(const std::string& path, std::uint64_t most_bytes) {
  const OwnedFile file(std::fopen(path.c_str(), "rbe"));
  if (!file) fail_to_open(path, errno);
  return read_all(file.get(), path, most_bytes);
}

std::string read_small_regular_file(const std::string& path, std::uint64_t most_bytes) {
  const int descriptor = open_regular_file(path).descriptor;
  const OwnedFile file(fdopen(descriptor, "rb"));
  if (!file) {
    const int error = errno;
    close(descriptor);
    fail_to_open(path, error);
  }
  return read_all(file.get(), path, most_bytes);
}

}  // namespace io
