// Adds a deadline to calls of NCCL that block the calling thread (ENGINE_NCCL_BLOCKING=1): a
// separate thread ends such a call.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "io/base/time/deadline.h"

namespace backends {

class NcclCallWatch {
 public:
  // `end` makes the current call return. The watch's thread calls it at most once, when the call
  // has exceeded its timeout or `is_aborted` returns true.
  NcclCallWatch(std::function<bool()> is_aborted, std::function<void()> end);
  ~NcclCallWatch();
  NcclCallWatch(const NcclCallWatch&) = delete;
  NcclCallWatch& operator=(const NcclCallWatch&) = delete;

  // One caller at a time, around a call. disarm() returns false if the call was ended.
  void arm(std::chrono::milliseconds timeout);
  bool disarm();

 private:
  void run();

  const std::function<bool()> is_aborted_;
  const std::function<void()> end_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool armed_ = false, fired_ = false, leaves_ = false;  // guarded by the mutex, like the next
  base::Deadline deadline_{};
  std::thread thread_;
};

}  // namespace backends
