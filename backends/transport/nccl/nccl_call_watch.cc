// Implements the watch's thread, which sleeps while no call is in progress.
#include "backends/transport/nccl/nccl_call_watch.h"

#include <utility>

namespace backends {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);  // poll interval of is_aborted during a call

}  // namespace

NcclCallWatch::NcclCallWatch(std::function<bool()> is_aborted, std::function<void()> end)
    : is_aborted_(std::move(is_aborted)), end_(std::move(end)), thread_([this] { run(); }) {}

NcclCallWatch::~NcclCallWatch() {
  {
    const std::lock_guard lock(mutex_);
    leaves_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void NcclCallWatch::arm(std::chrono::milliseconds timeout) {
  {
    const std::lock_guard lock(mutex_);
    armed_ = true;
    deadline_ = base::deadline_in(timeout);
  }
  changed_.notify_one();
}

bool NcclCallWatch::disarm() {
  const std::lock_guard lock(mutex_);
  armed_ = false;
  return !fired_;
}

void NcclCallWatch::run() {
  std::unique_lock lock(mutex_);
  while (!leaves_) {
    if (!armed_) {
      changed_.wait(lock);
    } else if (base::has_passed(deadline_) || is_aborted_()) {
      armed_ = false;
      fired_ = true;
      end_();
    } else {
      changed_.wait_for(lock, kLook);
    }
  }
}

}  // namespace backends
