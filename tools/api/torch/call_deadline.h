// Ends a call that takes longer than its own timeout, where that is shorter than the group's.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace engine::pytorch {

class CallDeadline {
 public:
  // `on_late` runs in the thread of the deadline, once.
  explicit CallDeadline(std::function<void()> on_late) : on_late_(std::move(on_late)) {}
  CallDeadline(const CallDeadline&) = delete;
  CallDeadline& operator=(const CallDeadline&) = delete;
  ~CallDeadline() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void begin(std::chrono::milliseconds timeout) {
    {
      const std::lock_guard lock(mutex_);
      until_ = std::chrono::steady_clock::now() + timeout;
      if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    }
    changed_.notify_all();
  }
  void end() {
    const std::lock_guard lock(mutex_);
    until_.reset();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (!until_) {
        changed_.wait(lock);
      } else if (std::chrono::steady_clock::now() < *until_) {
        changed_.wait_until(lock, *until_);
      } else {
        on_late_();
        until_.reset();
      }
    }
  }

  const std::function<void()> on_late_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::chrono::steady_clock::time_point> until_;
  bool stopping_ = false;
  std::thread thread_;  // started by the first begin()
};

}  // namespace engine::pytorch
