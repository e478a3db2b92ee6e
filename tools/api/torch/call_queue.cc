// Implements the queue of calls.
#include "tools/api/torch/call_queue.h"

#include <utility>

namespace engine::pytorch {

void CallQueue::finish() {
  while (true) {
    std::vector<std::thread> threads;
    {
      const Lock lock(mutex_);
      stopping_ = true;
      threads.swap(threads_);
    }
    if (threads.empty()) return;
    changed_.notify_all();
    for (std::thread& thread : threads) thread.join();
  }
}

void CallQueue::need_thread(const Lock&) {
  if (available_ > 0) return;
  threads_.emplace_back([this] { run(); });
  ++available_;
}

void CallQueue::post(Call call) {
  {
    const Lock lock(mutex_);
    calls_.push_back(std::move(call));
    need_thread(lock);
  }
  changed_.notify_all();
}

void CallQueue::post_callbacks(Callbacks callbacks) {
  {
    const Lock lock(mutex_);
    callbacks_.push_back(std::move(callbacks));
    need_thread(lock);
  }
  changed_.notify_all();
}

bool CallQueue::run_now(const Call& call) {
  {
    const Lock lock(mutex_);
    if (busy_ || !calls_.empty()) return false;
    busy_ = true;
  }
  const Callbacks callbacks = call();
  bool more = false;
  {
    const Lock lock(mutex_);
    busy_ = false;
    more = !calls_.empty() || stopping_;
  }
  if (more) changed_.notify_all();
  if (callbacks) callbacks();
  return true;
}

void CallQueue::run() {
  Lock lock(mutex_);
  while (true) {
    changed_.wait(
        lock, [&] { return !callbacks_.empty() || (!busy_ && (stopping_ || !calls_.empty())); });
    if (!callbacks_.empty()) {
      Callbacks callbacks = std::move(callbacks_.front());
      callbacks_.pop_front();
      run_callbacks(std::move(callbacks), lock);
      continue;
    }
    if (calls_.empty()) break;
    Call call = std::move(calls_.front());
    calls_.pop_front();
    busy_ = true;
    lock.unlock();
    Callbacks callbacks = call();
    call = nullptr;  // it holds tensors
    lock.lock();
    busy_ = false;
    if (callbacks) run_callbacks(std::move(callbacks), lock);
  }
  --available_;
}

void CallQueue::run_callbacks(Callbacks callbacks, Lock& lock) {
  --available_;
  if (!calls_.empty() || !callbacks_.empty()) need_thread(lock);
  lock.unlock();
  changed_.notify_all();
  callbacks();
  callbacks = nullptr;
  lock.lock();
  ++available_;
}

}  // namespace engine::pytorch
