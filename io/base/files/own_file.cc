// Implements open() followed by fstat() of the opened file.
#include "io/base/files/own_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "io/base/files/io_error.h"
#include "io/base/files/retry_on_eintr.h"
#include "io/base/files/system_error_text.h"
#include "io/base/text/escape_text.h"

namespace io {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& found) {
  throw CannotCreateError(path + ": is " + found +
                          "; expected a run's own file, with no other name, since writing to it "
                          "would change that file; remove it");
}

[[noreturn]] void refuse_link(const std::string& path) {
  std::error_code unknown;
  const std::string target = std::filesystem::read_symlink(path, unknown).string();
  refuse(path, "a link to " + base::escape_text(target));
}

[[noreturn]] void refuse_unopened(const std::string& path, int error) {
  struct stat found {};
  const bool there = lstat(path.c_str(), &found) == 0;
  if (there && S_ISLNK(found.st_mode)) refuse_link(path);
  std::string text = (there ? "cannot open " : "cannot create ") + path + ": ";
  text += base::system_error_text(error);
  if (there) {
    char mode[16];
    std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(found.st_mode & 07777));
    text += " (owned by user " + std::to_string(found.st_uid) + ", mode " + mode + ")";
  }
  throw CannotCreateError(text);
}

std::string kind_of(mode_t mode) {
  return S_ISDIR(mode)                    ? "a folder"
         : S_ISFIFO(mode)                 ? "a pipe"
         : S_ISCHR(mode) || S_ISBLK(mode) ? "a device"
                                          : "no plain file";
}

// A file without any name was deleted after it was opened; writing it changes no other file.
void check_names(const std::string& path, const struct stat& found) {
  if (S_ISREG(found.st_mode) && found.st_nlink > 1)
    refuse(path, "a file with " + std::to_string(found.st_nlink) + " names (hard links)");
}

}  // namespace

base::Descriptor open_own_file(const std::string& path, int flags, mode_t mode) {
  base::Descriptor file(base::retry_on_eintr([&] {
    return open(path.c_str(), (flags & ~O_TRUNC) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode);
  }));
  if (!file) refuse_unopened(path, errno);
  struct stat found {};
  if (fstat(file.fd(), &found) != 0)
    throw CannotCreateError("cannot look at " + path + ": " + base::system_error_text(errno));
  if (!S_ISREG(found.st_mode))
    throw CannotCreateError(path + ": is " + kind_of(found.st_mode) + "; expected a plain file");
  check_names(path, found);
  return file;
}

base::Descriptor open_own_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) refuse_unopened(path, errno);
  base::Descriptor folder(base::retry_on_eintr(
      [&] { return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }));
  if (!folder) refuse_unopened(path, errno);
  return folder;
}

void check_own_name(const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0) return;
  if (S_ISLNK(found.st_mode)) refuse_link(path);
  check_names(path, found);
}

}  // namespace io
