// Who holds the lock of a run's folder, and the signs of life that holders give.
#pragma once

#include <sys/types.h>
#include <time.h>

#include <optional>
#include <string>

namespace tools {

// The process that a lock file names.
struct LockHolder {
  std::string host;
  long pid = 0;  // 0: nobody

  bool is_here() const;      // on this host
  bool is_gone() const;      // no other process of this host has the id
  std::string text() const;  // "process 7 on n1"
  bool operator==(const LockHolder&) const = default;
};

// What a living holder changes every few seconds. Two are compared with each other and never with a
// clock: that of the host which keeps the file may be another.
struct LockSign {
  LockHolder holder;
  timespec changed{};  // the file's time of modification

  bool operator==(const LockSign& other) const {
    return holder == other.holder && changed.tv_sec == other.changed.tv_sec &&
           changed.tv_nsec == other.changed.tv_nsec;
  }
};

// Throws io::Error where the file cannot be looked at.
LockSign lock_sign(int fd, const std::string& path);
// Opens the file, so that a network file system asks its server. Nothing: there is no such file.
std::optional<LockSign> lock_sign(const std::string& path);
// Writes this process as the holder. Throws io::CannotCreateError.
void write_lock_sign(int fd, const std::string& path);

}  // namespace tools
