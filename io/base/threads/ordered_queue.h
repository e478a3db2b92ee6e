// Runs numbered jobs in order, on a thread of its own while the caller does something else.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace base {

// Jobs have the numbers 0, 1, 2, ... A queue with a thread runs those that are posted; what they
// use belongs to the thread until wait(). Without a thread, wait() runs them. There is one caller.
// Does not allocate after construction.
class OrderedQueue {
 public:
  // `run` runs the job of that number. `thread` names the thread in traces, as static text; null:
  // no thread.
  OrderedQueue(std::function<void(std::size_t)> run, const char* thread);
  // Waits for the job that is running; those that follow are not run.
  ~OrderedQueue();
  OrderedQueue(const OrderedQueue&) = delete;
  OrderedQueue& operator=(const OrderedQueue&) = delete;

  // The first `count` of all jobs may run. After a failure, none does.
  void post(std::size_t count);
  // Waits until the first `count` of all jobs, which are posted, have ended. Rethrows the exception
  // of one that failed.
  void wait(std::size_t count);
  void wait_for_all();
  // Waits until none is running or waiting. Returns how many have ended well.
  std::size_t wait_idle() const;
  // Returns true if one is running or waiting, and none has failed.
  bool is_busy() const;

 private:
  void work();
  bool is_idle() const { return failure_ || ended_ == posted_; }

  const std::function<void(std::size_t)> run_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::size_t posted_ = 0, ended_ = 0;  // of all jobs
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // declared last: it uses all members above
};

}  // namespace base
