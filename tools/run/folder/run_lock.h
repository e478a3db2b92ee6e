// Keeps a second job out of a run's folder, on this host and on others that mount it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "tools/run/folder/lock_sign.h"

namespace tools {

// How a lock is asked for that another process may have.
struct LockClaim {
  bool take_over = false;  // it is taken, which the other one finds out by look()
  bool waits = false;      // for a holder on another host, who may have died, instead of refusing
  // Silence after which one has died. Half of it is watched where the file looks that old already:
  // three beats, for clocks differ.
  std::chrono::milliseconds stale = std::chrono::seconds(30);
};

// The lock is DIR/run.lock: an flock() for processes of hosts between which the file system passes
// locks on, and the holder's host and process id in the file, whose time of modification is renewed
// every few seconds, for hosts between which it does not. A lock whose holder is gone is taken over
// at once on the holder's own host, and from another one where it is silent for LockClaim::stale.
// A file that is locked by a process that it does not name is replaced after half of that time.
class RunLock {
 public:
  static constexpr int kBeatSeconds = 5;

  // Throws io::CannotCreateError that names the holder's host and process when another process has
  // it, and when the file cannot be made; StoppedError where a signal ends the wait for it.
  explicit RunLock(const std::string& folder, const LockClaim& claim = {});
  ~RunLock();  // releases; the file stays, empty
  // Whether the file still is this job's; every kBeatSeconds by itself. One that is missing in the
  // folder is made again; what another job has made in its place is the other's.
  void look();
  // Throws io::CannotCreateError where look() has found that the folder is another job's.
  void check() const;
  // Whether the folder is the one in which the lock is.
  bool is_in_place();
  // The folder is gone, or an empty one has taken its place: makes it, and the lock, unless that
  // would be on another file system (what was mounted there is away) or somebody else is quicker.
  // Returns whether both are there.
  bool take_place();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  void open_and_lock(const LockClaim& claim);
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
  dev_t device_ = 0;  // of the folder
  ino_t folder_inode_ = 0;
  std::atomic<bool> lost_{false};
  std::string why_lost_;  // written before lost_
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread beats_;
};

}  // namespace tools
