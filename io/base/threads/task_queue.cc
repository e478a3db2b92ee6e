// Implements the thread that runs the jobs.
#include "io/base/threads/task_queue.h"

#include <system_error>
#include <utility>

#include "io/base/machine/cpu_affinity.h"

namespace base {

TaskQueue::~TaskQueue() { end(); }

void TaskQueue::add(std::function<void()> job) {
  if (!std::exchange(begun_, true)) begin();
  if (!thread_.joinable()) return work(job);
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(job));
  changed_.notify_one();
}

void TaskQueue::finish() {
  end();
  if (failure_) std::rethrow_exception(failure_);
}

void TaskQueue::begin() {
  try {
    const UnboundMoment moment;
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    return;
  }
}

void TaskQueue::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void TaskQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::function<void()> job = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    work(job);
    lock.lock();
  }
}

void TaskQueue::work(const std::function<void()>& job) noexcept {
  if (failure_) return;
  try {
    job();
  } catch (...) {
    failure_ = std::current_exception();
  }
}

}  // namespace base
