// Implements wake_event.h.
#include "io/base/files/wake_event.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "io/base/files/io_error.h"
#include "io/base/files/system_error_text.h"

namespace base {

WakeEvent::WakeEvent() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_) throw io::LimitError("cannot make an event descriptor: " + system_error_text(errno));
}

void WakeEvent::wake() const noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(fd(), &one, sizeof one);  // fails if it is full: awake
}

void WakeEvent::clear() const noexcept {
  std::uint64_t wakes = 0;
  [[maybe_unused]] const ssize_t n = ::read(fd(), &wakes, sizeof wakes);
}

}  // namespace base
