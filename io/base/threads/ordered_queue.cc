// Implements the thread of the queue.
#include "io/base/threads/ordered_queue.h"

#include <utility>

#include "io/base/time/trace.h"

namespace base {

OrderedQueue::OrderedQueue(std::function<void(std::size_t)> run, const char* thread)
    : run_(std::move(run)) {
  if (thread == nullptr) return;
  thread_ = std::thread([this, thread, tracer = Tracer::of_this_thread()] {
    const TraceThread traced(tracer, thread);
    work();
  });
}

OrderedQueue::~OrderedQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void OrderedQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || ended_ < posted_; });
    if (stop_) return;
    const std::size_t number = ended_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      run_(number);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    if (!failure_) ++ended_;
    changed_.notify_all();
    if (failure_) return;
  }
}

void OrderedQueue::post(std::size_t count) {
  const std::lock_guard lock(mutex_);
  if (count <= posted_) return;
  posted_ = count;
  if (thread_.joinable()) changed_.notify_all();
}

void OrderedQueue::wait(std::size_t count) {
  std::unique_lock lock(mutex_);
  if (thread_.joinable()) {
    changed_.wait(lock, [&] { return failure_ || ended_ >= count; });
  } else {
    for (; ended_ < count && !failure_; ++ended_) try {
        run_(ended_);
      } catch (...) {
        failure_ = std::current_exception();
        break;
      }
  }
  if (failure_) std::rethrow_exception(failure_);
}

void OrderedQueue::wait_for_all() {
  std::size_t all = 0;
  {
    const std::lock_guard lock(mutex_);
    all = posted_;
  }
  wait(all);
}

std::size_t OrderedQueue::wait_idle() const {
  std::unique_lock lock(mutex_);
  if (thread_.joinable()) changed_.wait(lock, [&] { return is_idle(); });
  return ended_;
}

bool OrderedQueue::is_busy() const {
  const std::lock_guard lock(mutex_);
  return !is_idle();
}

}  // namespace base
