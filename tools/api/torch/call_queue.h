// Runs the calls of one process group in order: on a thread of its own, or in the thread that waits
// for the result anyway.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace engine::pytorch {

class CallQueue {
 public:
  CallQueue() = default;
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;
  ~CallQueue() { finish(); }

  // Runs the call after all earlier ones. It must not throw.
  void post(std::function<void()> call);
  // Runs the call in this thread if no earlier one is pending, and returns true; else does nothing.
  bool run_now(const std::function<void()>& call);
  // Waits for the calls that were posted; no other may follow.
  void finish();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> calls_;
  bool busy_ = false;  // a call is running
  bool stopping_ = false;
  std::thread thread_;  // started by the first post()
};

}  // namespace engine::pytorch
