// Runs the calls of one process group in order: on a thread of its own, or in the thread that waits
// for the result anyway.
//
// Callbacks of futures may make further calls and wait for them, so they run outside the order, and
// a thread that is not in a callback is always there for the calls.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace engine::pytorch {

class CallQueue {
 public:
  // The callbacks of a call that has ended; empty: none.
  using Callbacks = std::function<void()>;
  using Call = std::function<Callbacks()>;

  CallQueue() = default;
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;
  ~CallQueue() { finish(); }

  // Runs the call after all earlier ones. It must not throw.
  void post(Call call);
  // Runs the call in this thread if no earlier one is pending, and returns true; else does nothing.
  bool run_now(const Call& call);
  // Runs callbacks soon, for a thread that must not wait for them.
  void post_callbacks(Callbacks callbacks);
  // Waits for the calls and callbacks that were posted; only callbacks may post others meanwhile.
  void finish();

 private:
  using Lock = std::unique_lock<std::mutex>;
  void run();
  void run_callbacks(Callbacks callbacks, Lock& lock);
  void need_thread(const Lock&);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Call> calls_;
  std::deque<Callbacks> callbacks_;
  bool busy_ = false;  // a call is running
  bool stopping_ = false;
  int available_ = 0;                 // threads that are not in callbacks
  std::vector<std::thread> threads_;  // started when they are needed
};

}  // namespace engine::pytorch
