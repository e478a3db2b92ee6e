// Waits for several messages.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>

#include "engine/collectives.h"

namespace engine::pytorch {

class MessageBatch {
 public:
  MessageBatch() = default;
  MessageBatch(const MessageBatch&) = delete;
  MessageBatch& operator=(const MessageBatch&) = delete;
  // The messages refer to this.
  ~MessageBatch() { wait_for_all(); }

  // Returns the callback of one more message.
  api::Messages::Done expect() {
    const std::lock_guard lock(mutex_);
    ++pending_;
    return [this](const std::exception_ptr& failure, int) {
      const std::lock_guard inner(mutex_);
      if (failure && !failure_) failure_ = failure;
      if (--pending_ == 0) all_done_.notify_all();
    };
  }
  // Takes back an expect() whose message could not be passed on.
  void forget() {
    const std::lock_guard lock(mutex_);
    --pending_;
  }
  // Waits until all messages are complete or have failed; rethrows the first failure.
  void wait() {
    wait_for_all();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void wait_for_all() {
    std::unique_lock lock(mutex_);
    all_done_.wait(lock, [&] { return pending_ == 0; });
  }

  std::mutex mutex_;
  std::condition_variable all_done_;
  int pending_ = 0;
  std::exception_ptr failure_;
};

}  // namespace engine::pytorch
