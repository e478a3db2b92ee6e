// Runs jobs in order on a separate thread, concurrently with the caller.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace base {

// For use by one thread.
class TaskQueue {
 public:
  TaskQueue() = default;
  // Waits for the jobs.
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  // The first call starts the thread; if the system provides none, the caller runs the jobs. After
  // a job throws, the remaining ones are skipped.
  void add(std::function<void()> job);
  // Waits until all jobs are done; only the destructor may follow. Rethrows a job's exception.
  void finish();

 private:
  void begin();
  void end();
  void run();
  void work(const std::function<void()>& job) noexcept;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;  // guarded, as is `ending_`
  bool ending_ = false;
  std::exception_ptr failure_;  // exception of a job; owned by the thread until it has ended
  bool begun_ = false;
  std::thread thread_;  // declared last: it uses the other members
};

}  // namespace base
