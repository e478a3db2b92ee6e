// Implements the queue of calls.
#include "tools/api/torch/call_queue.h"

#include <utility>

namespace engine::pytorch {

void CallQueue::finish() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CallQueue::post(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }
  changed_.notify_all();
}

bool CallQueue::run_now(const std::function<void()>& call) {
  {
    const std::lock_guard lock(mutex_);
    if (busy_ || !calls_.empty()) return false;
    busy_ = true;
  }
  call();
  bool more = false;
  {
    const std::lock_guard lock(mutex_);
    busy_ = false;
    more = !calls_.empty() || stopping_;
  }
  if (more) changed_.notify_all();
  return true;
}

void CallQueue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !busy_ && (stopping_ || !calls_.empty()); });
    if (calls_.empty()) return;
    std::function<void()> call = std::move(calls_.front());
    calls_.pop_front();
    busy_ = true;
    lock.unlock();
    call();
    call = nullptr;  // it holds tensors
    lock.lock();
    busy_ = false;
  }
}

}  // namespace engine::pytorch
