// Implements the abort of a wait.
#include "backends/interruptible_wait.h"

namespace backends {

void InterruptibleWait::abort(std::string_view reason) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_.assign(reason);
  } catch (const std::exception&) {
    // Out of memory: aborts without a reason.
  }
  aborted_ = true;
}

void InterruptibleWait::throw_if_aborted() const {
  if (!aborted_) return;
  const std::lock_guard lock(mutex_);
  throw PeerError("aborted: " + reason_);
}

}  // namespace backends
