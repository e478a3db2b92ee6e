// Implements the lock with flock() and a heartbeat in the file's modification time.
#include "tools/folder/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "backends/identity/host_identity.h"
#include "io/base/files/io_error.h"
#include "io/base/files/retry_on_eintr.h"
#include "io/base/files/system_error_text.h"
#include "io/base/time/deadline.h"
#include "io/checkpoint/checkpoint_directory.h"
#include "tools/folder/lock_file.h"
#include "tools/launch/workers/stop_signals.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

// Does not wait. Returns 0 if this process has the lock.
int try_lock(int fd) {
  return base::retry_on_eintr([&] { return flock(fd, LOCK_EX | LOCK_NB); });
}

std::chrono::milliseconds time_of(const timespec& time) {
  return std::chrono::milliseconds(time.tv_sec * 1000L + time.tv_nsec / 1'000'000);
}

std::string seconds_text(std::chrono::milliseconds time) {
  return std::to_string(std::chrono::ceil<std::chrono::seconds>(time).count()) + " s";
}

// The lock file of another process, in the place of this one's.
struct OtherLock {
  bool held = false;
  LockHolder holder = {};
  bool has_no_sign = false;  // certain: it could be read
};

// Returns none if it cannot be opened.
std::optional<OtherLock> look_at(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return std::nullopt;
  OtherLock other{.held = flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK};
  try {
    other.holder = lock_sign(file, path).holder;
    other.has_no_sign = other.holder.pid == 0;
  } catch (const io::Error&) {  // the file system is not available
  }
  close(file);
  return other;
}

}  // namespace

RunLock::RunLock(const std::string& folder, const LockClaim& claim)
    : folder_(folder), path_((std::filesystem::path(folder) / "run.lock").string()) {
  try {
    open_and_lock(claim);
    try {
      write_lock_sign(fd_, path_);
    } catch (...) {
      static_cast<void>(unlink(path_.c_str()));  // unsigned, so it is useless
      throw;
    }
    // The unsigned file may have been replaced.
    if (try_lock(fd_) == 0) check_is_named();
    struct stat folder_status {};
    if (stat(folder_.c_str(), &folder_status) == 0) {
      device_ = folder_status.st_dev;
      folder_inode_ = folder_status.st_ino;
    }
    beats_ = std::thread([this] { beat(); });
  } catch (...) {
    if (fd_ >= 0) close(fd_);
    throw;
  }
}

RunLock::~RunLock() {
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  beats_.join();
  static_cast<void>(!ftruncate(fd_, 0));  // no holder: also visible to hosts without flock()
  close(fd_);
}

void RunLock::open_and_lock(const LockClaim& claim) {
  fd_ = open_lock_file(path_);
  const int error = try_lock(fd_) == 0 ? 0 : errno;  // without file locks, the signs decide
  if (error == 0) check_is_named();
  if (claim.take_over) return error == EWOULDBLOCK ? take_over() : void();
  const LockSign sign = lock_sign(fd_, path_);
  const LockHolder& holder = sign.holder;
  if (error == EWOULDBLOCK) return claim_locked(sign, claim);
  if (holder.pid == 0 || (holder.is_here() && (error == 0 || holder.is_gone()))) return;
  check_other_host(sign, claim);
}

// The file is open and locked by another process, which it may not name.
void RunLock::claim_locked(const LockSign& sign, const LockClaim& claim) {
  const LockHolder& holder = sign.holder;
  if (holder.pid == 0) return replace_unsigned(sign, claim);
  // A file server may keep the lock of a dead host for some time.
  if (!holder.is_here()) return claim.waits ? check_other_host(sign, claim) : refuse(holder, "");
  if (holder.pid == getpid()) refuse(holder, "");
  if (holder.is_gone()) return replace_unsigned(sign, claim);
  if (claim.from_stopped && holder.is_stopped()) return take_over();
  if (!claim.waits || !is_freed_soon()) refuse(holder, "");
  close(std::exchange(fd_, -1));
  open_and_lock(claim);
}

void RunLock::take_over() {
  close(std::exchange(fd_, -1));
  static_cast<void>(unlink(path_.c_str()));  // the other process keeps its open file
  open_and_lock({});
}

// A process that has just been killed, as rank 0 is after the parent of a job's ranks, gives back
// its memory before it closes its files.
bool RunLock::is_freed_soon() const {
  constexpr std::chrono::milliseconds kDying{1000}, kPause{10};
  for (const base::Deadline end = base::deadline_in(kDying); !base::has_passed(end);) {
    if (try_lock(fd_) == 0) return true;
    if (const int signal = stop_signal_flag(); signal != 0) throw StoppedError(signal);
    std::this_thread::sleep_for(kPause);
  }
  return false;
}

void RunLock::check_is_named() const {
  struct stat mine {
  }, named{};
  const bool seen = fstat(fd_, &mine) == 0 && stat(path_.c_str(), &named) == 0;
  if (!seen && errno != ENOENT)
    throw io::Error("cannot look at " + path_ + ": " + base::system_error_text(errno));
  if (seen && mine.st_ino == named.st_ino) return;
  throw io::CannotCreateError(folder_ + " was moved or removed while this job was starting");
}

void RunLock::refuse(const LockHolder& holder, const std::string& more) const {
  const std::string pid = std::to_string(holder.pid);
  const bool stopped = holder.pid > 0 && holder.is_here() && holder.is_stopped();
  throw io::CannotCreateError(
      "another job is running in " + folder_ + (holder.pid > 0 ? ": " + holder.text() : "") + more +
      (stopped ? ", which is stopped (SIGSTOP): continue it with `kill -CONT " + pid +
                     "`, or end it with `kill -KILL " + pid + "`, or give another --save-dir"
               : "; wait for it, or give another --save-dir"));
}

void RunLock::check_other_host(const LockSign& sign, const LockClaim& claim) {
  using std::chrono::milliseconds;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto age = std::chrono::duration_cast<milliseconds>(now) - time_of(sign.changed);
  if (!claim.waits && age >= milliseconds(0) && age <= claim.stale)
    refuse(sign.holder, ", last seen " + std::to_string(age.count() / 1000) +
                            " s ago (if it was killed: " + seconds_text(claim.stale) +
                            " after its last sign the folder is free)");
  // The clocks may differ: a sign that looks old may be recent, and vice versa.
  watch(sign, std::clamp(claim.stale - age, claim.stale / 2, claim.stale));
}

void RunLock::watch(const LockSign& first, std::chrono::milliseconds time) {
  constexpr auto kPause = std::chrono::milliseconds(100);
  constexpr auto kSilentTime = std::chrono::seconds(1);  // an ending holder has ended by then
  const base::Deadline end = base::deadline_in(time), silent_end = base::deadline_in(kSilentTime);
  for (bool reported = false; !base::has_passed(end);) {
    if (!reported && base::has_passed(silent_end)) {
      print_notice(path_ + " names " + first.holder.text() + ": waiting " + seconds_text(time) +
                   " at most for a sign of life; without one the folder is free");
      reported = true;
    }
    std::this_thread::sleep_for(kPause);
    if (const int signal = stop_signal_flag(); signal != 0) throw StoppedError(signal);
    const std::optional<LockSign> now = lock_sign(path_);
    if (!now || now->holder.pid == 0) {  // it has ended in order
      close(std::exchange(fd_, -1));
      return open_and_lock({});
    }
    if (*now != first) refuse(now->holder, ", which has just given a sign of life");
  }
  if (try_lock(fd_) != 0 && errno == EWOULDBLOCK)
    refuse(first.holder, ", silent, but its lock is still held");
}

// The holder of the lock is a job that is just starting or ending, or not a job: a process of
// another user who could once read the file. A living job signs the file at once, and touches it
// then, which is visible even if its process, in a container, is not.
void RunLock::replace_unsigned(const LockSign& first, const LockClaim& claim) {
  constexpr auto kPause = std::chrono::milliseconds(20);
  constexpr auto kSilentTime = std::chrono::milliseconds(500);  // a start takes less
  const LockHolder& holder = first.holder;
  const std::string what =
      path_ + " is locked by a process that it does not name" +
      (holder.pid > 0 ? " (" + holder.text() + ", which it names, is gone)" : "");
  const std::chrono::milliseconds time = claim.stale / 2;
  const base::Deadline end = base::deadline_in(time), silent_end = base::deadline_in(kSilentTime);
  for (bool reported = false; !base::has_passed(end);) {
    if (!reported && base::has_passed(silent_end)) {
      print_notice(what + ": waiting " + seconds_text(time) +
                   " at most for a sign of life; without one the file is replaced");
      reported = true;
    }
    std::this_thread::sleep_for(kPause);
    if (const int signal = stop_signal_flag(); signal != 0) throw StoppedError(signal);
    const std::optional<LockSign> now = lock_sign(path_);
    if (now && *now == first && try_lock(fd_) != 0) continue;
    if (now && *now != first) {
      std::this_thread::sleep_for(kPause);  // the other process may be about to sign
      const std::optional<LockSign> then = lock_sign(path_);
      if (then && then->holder == holder) refuse(holder, ", which has just given a sign of life");
    }
    close(std::exchange(fd_, -1));
    return open_and_lock(claim);
  }
  const int made = replace_lock_file(path_, fd_, first);
  if (made < 0 && is_named(path_, fd_)) refuse(holder, what);
  close(std::exchange(fd_, made));
  if (made < 0) return open_and_lock(claim);
  print_notice(what + ", and gave no sign of life: the file is replaced");
}

void RunLock::beat() {
  std::unique_lock guard(mutex_);
  while (!wake_.wait_for(guard, std::chrono::seconds(kBeatSeconds), [this] { return ending_; }))
    look_locked();
}

void RunLock::look() {
  const std::lock_guard guard(mutex_);
  look_locked();
}

void RunLock::check() const {
  if (lost_.load(std::memory_order_acquire)) throw io::CannotCreateError(why_lost_);
}

void RunLock::lose(const std::string& why) {
  why_lost_ = why + "; this job ends, and saves nothing more there";
  lost_.store(true, std::memory_order_release);
}

void RunLock::look_locked() {
  if (lost_.load()) return;
  static_cast<void>(futimens(fd_, nullptr));  // best effort: the flock is the lock
  struct stat mine {
  }, named{};
  if (fstat(fd_, &mine) != 0) return;
  if (stat(path_.c_str(), &named) == 0) {
    if (mine.st_ino == named.st_ino && mine.st_dev == named.st_dev) return;
    const std::optional<OtherLock> other = look_at(path_);
    if (!other) return;
    const bool own = other->holder.pid == getpid() && other->holder.is_here();
    if (other->held && own) return;  // the file system changes inode numbers
    if (other->held || (other->holder.pid > 0 && !own))
      return lose("another job has taken the folder " + folder_ +
                  (other->holder.pid > 0 ? ": " + other->holder.text() : "") +
                  "; this job's run.lock was deleted or replaced");
    if (other->has_no_sign && is_in_place_locked())
      return lose("another job has taken the folder " + folder_ +
                  ", and has ended; this job's run.lock was replaced");
  } else if (errno != ENOENT) {
    return;  // the file system is not available
  }
  if (!is_in_place_locked()) {  // for take_place()
    if (!io::newest_checkpoint_name(folder_).empty())
      lose("another folder with checkpoints has taken the place of " + folder_);
    return;
  }
  unlink(path_.c_str());  // if it exists, it has no holder
  static_cast<void>(make_file_locked());
}

bool RunLock::make_file_locked() {
  const int made = make_lock_file(path_);
  if (made < 0) return false;             // another process was faster; the next look() reports it
  static_cast<void>(!ftruncate(fd_, 0));  // no process works at the old file's location any longer
  close(fd_);
  fd_ = made;
  struct stat folder {};
  if (stat(folder_.c_str(), &folder) == 0) {
    folder_inode_ = folder.st_ino;
    device_ = folder.st_dev;
  }
  try {
    write_lock_sign(fd_, path_);
  } catch (const io::CannotCreateError&) {
    return true;  // a full disk: the flock is sufficient
  }
  return true;
}

bool RunLock::is_in_place() {
  const std::lock_guard guard(mutex_);
  return is_in_place_locked();
}

bool RunLock::is_in_place_locked() const {
  struct stat folder {};
  return stat(folder_.c_str(), &folder) == 0 && folder.st_ino == folder_inode_ &&
         folder.st_dev == device_;
}

bool RunLock::take_place() {
  namespace fs = std::filesystem;
  const std::lock_guard guard(mutex_);
  if (lost_.load()) return false;
  std::error_code error;
  fs::path above = fs::absolute(folder_, error).lexically_normal();
  struct stat status {};
  while (stat(above.c_str(), &status) != 0) {
    if (errno != ENOENT || above == above.root_path()) return false;
    above = above.parent_path();
  }
  if (status.st_dev != device_) return false;
  fs::create_directories(folder_, error);
  if (error) return false;
  unlink(path_.c_str());  // look() has found that it has no holder, if it exists
  return make_file_locked();
}

}  // namespace tools
