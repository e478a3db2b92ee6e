// Identifies the holder of the lock of a run's folder, and its signs of life.
#pragma once

#include <sys/types.h>
#include <time.h>

#include <optional>
#include <string>

namespace tools {

// The process that a lock file names.
struct LockHolder {
  std::string host;
  long pid = 0;  // 0: no process

  bool is_here() const;      // true if it is on this host
  bool is_gone() const;      // true if no other process of this host has the id
  bool is_stopped() const;   // true if that process of this host is stopped (SIGSTOP)
  std::string text() const;  // e.g. "process 7 on n1"
  bool operator==(const LockHolder&) const = default;
};

// The values that a living holder changes every few seconds. Two signs are compared with each other
// and never with a clock, because the host that stores the file may have another clock.
struct LockSign {
  LockHolder holder;
  timespec changed{};  // the file's modification time

  bool operator==(const LockSign& other) const {
    return holder == other.holder && changed.tv_sec == other.changed.tv_sec &&
           changed.tv_nsec == other.changed.tv_nsec;
  }
};

// Throws io::Error if the file cannot be inspected.
LockSign lock_sign(int fd, const std::string& path);
// Opens the file, so that a network file system asks its server. Returns nothing if there is no
// such file.
std::optional<LockSign> lock_sign(const std::string& path);
// Writes this process as the holder. Throws io::CannotCreateError.
void write_lock_sign(int fd, const std::string& path);

}  // namespace tools
