// Sets file modes, and exchanges two files with renameat2().
#include "tools/folder/lock_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "io/base/files/io_error.h"
#include "io/base/files/own_file.h"
#include "io/base/files/retry_on_eintr.h"
#include "io/base/files/system_error_text.h"

namespace tools {
namespace {

// Without read permission for group and others, no other user can open the file before
// limit_readers().
constexpr mode_t kFirstMode = 0622;

bool lock(int fd) {
  return base::retry_on_eintr([&] { return flock(fd, LOCK_EX | LOCK_NB); }) == 0;
}

// Allows only users who may write the file to read it. Best effort: a file system may have no
// modes, and replace_lock_file() also handles a lock of another user.
void limit_readers(int fd) {
  struct stat found {};
  if (fstat(fd, &found) != 0 || found.st_uid != geteuid()) return;
  const mode_t mode = found.st_mode & 07777;
  const mode_t wanted = (mode & ~mode_t{044}) | ((mode & 022) << 1);
  if (wanted != mode) static_cast<void>(fchmod(fd, wanted));
}

bool exchange(const std::string& a, const std::string& b) {
  return renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

}  // namespace

bool is_named(const std::string& path, int fd) {
  struct stat mine {
  }, named{};
  return fstat(fd, &mine) == 0 && lstat(path.c_str(), &named) == 0 && mine.st_ino == named.st_ino &&
         mine.st_dev == named.st_dev;
}

int open_lock_file(const std::string& path) {
  const int fd = io::open_own_file(path, O_RDWR | O_CREAT, kFirstMode).release();
  limit_readers(fd);
  return fd;
}

int make_lock_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kFirstMode);
  if (fd < 0) return -1;
  limit_readers(fd);
  if (lock(fd) || errno != EWOULDBLOCK) return fd;  // without file locks, the signs decide
  close(fd);
  return -1;
}

int replace_lock_file(const std::string& path, int held, const LockSign& seen) {
  // All processes use the same name, so that only the one that has locked this file replaces.
  const std::string aside = path + ".new";
  const int fd = open_lock_file(aside);
  bool replaced = false;
  try {
    if (lock(fd) && is_named(aside, fd)) {
      if (is_named(path, held)) {
        write_lock_sign(fd, aside);
        if (!exchange(aside, path))
          throw io::CannotCreateError("cannot replace " + path +
                                      ", which is locked: " + base::system_error_text(errno));
        // A job that has locked the file signs it, then checks the name: either its sign is seen
        // here, or it sees that the file was replaced.
        replaced = lock_sign(held, path) == seen || !exchange(aside, path);
      }
      unlink(aside.c_str());
    }
  } catch (...) {
    unlink(aside.c_str());
    close(fd);
    throw;
  }
  if (replaced) return fd;
  close(fd);
  return -1;
}

}  // namespace tools
