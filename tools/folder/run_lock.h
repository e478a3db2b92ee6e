// Keeps a second job out of a run's folder, on this host and on other hosts that mount it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "tools/folder/lock_sign.h"

namespace tools {

// Options for a claim to a lock that another process may hold.
struct LockClaim {
  bool take_over = false;     // take it; the other process detects that in look()
  bool from_stopped = false;  // the same, from a stopped process (SIGSTOP) of this host alone
  // Wait for a holder that may have died, on another host, or that may be dying on this one,
  // instead of failing.
  bool waits = false;
  // The silence after which a holder is considered dead. If the file already looks that old, half
  // of it is still waited: three heartbeats, because clocks differ.
  std::chrono::milliseconds stale = std::chrono::seconds(30);
};

// The lock is DIR/run.lock: an flock() for processes on hosts that share file locks, and, for other
// hosts, the holder's host and process id in the file, whose modification time is renewed every few
// seconds. A lock whose holder is gone is taken over at once on the holder's own host, and from
// another host after a silence of LockClaim::stale. A file that is locked by a process that it does
// not name is replaced after half of that time.
class RunLock {
 public:
  static constexpr int kBeatSeconds = 5;

  // Throws io::CannotCreateError that names the holder's host and process if another process has
  // the lock, and if the file cannot be created; StoppedError if a signal ends the wait.
  explicit RunLock(const std::string& folder, const LockClaim& claim = {});
  ~RunLock();  // releases the lock; the file stays, empty
  // Checks that the file still belongs to this job; runs automatically every kBeatSeconds. A
  // missing file in the folder is created again; a file that another job has made in its place
  // belongs to that job.
  void look();
  // Throws io::CannotCreateError if look() has found that the folder belongs to another job.
  void check() const;
  // Returns true if the path still names the folder with the lock.
  bool is_in_place();
  // Called if the folder is gone, or an empty one has taken its place: creates it, and the lock,
  // unless that would be on another file system (a mount is missing) or another process is faster.
  // Returns true if both exist.
  bool take_place();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  void open_and_lock(const LockClaim& claim);
  void claim_locked(const LockSign& sign, const LockClaim& claim);
  void take_over();
  bool is_freed_soon() const;
  void check_is_named() const;
  [[noreturn]] void refuse(const LockHolder& holder, const std::string& more) const;
  void check_other_host(const LockSign& sign, const LockClaim& claim);
  void watch(const LockSign& first, std::chrono::milliseconds time);
  void replace_unsigned(const LockSign& first, const LockClaim& claim);
  void beat();
  void look_locked();
  bool make_file_locked();
  bool is_in_place_locked() const;
  void lose(const std::string& why);

  std::string folder_, path_;
  int fd_ = -1;
  dev_t device_ = 0;  // device of the folder
  ino_t folder_inode_ = 0;
  std::atomic<bool> lost_{false};
  std::string why_lost_;  // written before lost_
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread beats_;
};

}  // namespace tools
