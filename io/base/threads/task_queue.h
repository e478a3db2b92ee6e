// Jobs that a thread of its own does in order, beside the caller.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace base {

// Used by one thread.
class TaskQueue {
 public:
  TaskQueue() = default;
  // Waits for the jobs.
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  // The first call starts the thread; where the system gives none, the caller does the jobs. After
  // a job that throws the others are left out.
  void add(std::function<void()> job);
  // Waits until all jobs are done; the last call but the destructor. Throws what a job has thrown.
  void finish();

 private:
  void begin();
  void end();
  void run();
  void work(const std::function<void()>& job) noexcept;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;  // guarded, as `ending_`
  bool ending_ = false;
  std::exception_ptr failure_;  // of the thread, until it has ended
  bool begun_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace base
