// Keeps that a communicator was aborted, and why.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>

namespace backends {

// Any thread may call these.
class AbortState {
 public:
  // Keeps the first reason; without memory for it, aborts without a reason.
  void abort(std::string_view reason) noexcept;
  bool is_aborted() const noexcept { return aborted_.load(std::memory_order_acquire); }
  std::string reason() const;
  // Throws PeerError "aborted: WHY".
  void throw_if_aborted() const {
    if (is_aborted()) throw_aborted();
  }

 private:
  [[noreturn]] void throw_aborted() const;

  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  std::string reason_;  // guarded by mutex_
};

}  // namespace backends
