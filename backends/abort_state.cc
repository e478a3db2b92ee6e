// Implements the abort with a reason.
#include "backends/abort_state.h"

#include <exception>

#include "backends/backend_error.h"

namespace backends {

void AbortState::abort(std::string_view reason) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_.assign(reason);
  } catch (const std::exception&) {
    // Out of memory: aborts without a reason.
  }
  aborted_.store(true, std::memory_order_release);
}

std::string AbortState::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

void AbortState::throw_aborted() const { throw PeerError("aborted: " + reason()); }

}  // namespace backends
