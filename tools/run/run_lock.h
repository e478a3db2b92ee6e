// Keeps a second job out of a run's folder, on this host and on others that mount it.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace tools {

// The lock is DIR/run.lock: an flock() for processes of hosts between which the file system passes
// locks on, and the holder's host and process id in the file, whose time of modification is renewed
// every few seconds, for hosts between which it does not. A lock whose holder is gone is taken over
// at once on the holder's own host, and after kStaleSeconds from another one.
class RunLock {
 public:
  static constexpr int kBeatSeconds = 5, kStaleSeconds = 30;

  // Throws io::CannotCreateError that names the holder's host and process when another process has
  // it, and when the file cannot be made.
  explicit RunLock(const std::string& folder);
  ~RunLock();  // releases; the file stays, empty
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  void open_and_lock();
  void check_other_hosts();
  void sign();
  void beat();

  std::string folder_, path_;
  int fd_ = -1;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread beats_;
};

}  // namespace tools
