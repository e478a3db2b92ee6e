// Implements the functions with open, fstat and read.
#include "io/base/files/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>

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

namespace io {
namespace {

// A file that exists but cannot be opened now (a failing disk, too many open files) is not missing:
// callers continue without missing files.
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

std::string read_small_file(const std::string& path, std::uint64_t max_bytes) {
  const OwnedFile file(std::fopen(path.c_str(), "rbe"));
  if (!file) fail_to_open(path, errno);
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
