// Wakes a thread that waits for file descriptors.
#pragma once

#include "io/base/files/descriptor.h"

namespace base {

// An event descriptor, for poll() or epoll_wait(): readable from wake() until clear(). Any thread
// may call these two.
class WakeEvent {
 public:
  WakeEvent();  // throws io::LimitError if there is no descriptor left

  int fd() const { return event_.fd(); }
  void wake() const noexcept;
  void clear() const noexcept;

 private:
  Descriptor event_;
};

}  // namespace base
