// Implements the store of one process.
#include "backends/transport/inproc/inproc_store.h"

#include "backends/backend_error.h"

namespace backends {

void InprocStore::set(std::string_view key, std::string_view value) {
  const std::lock_guard lock(mutex_);
  values_.insert_or_assign(std::string(key), std::string(value));
  changed_.notify_all();
}

std::string InprocStore::get(std::string_view key, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  auto found = values_.end();
  const bool there = changed_.wait_for(lock, timeout, [&] {
    found = values_.find(key);
    return found != values_.end() || failure_.has_value();
  });
  if (found != values_.end()) return found->second;
  if (there) throw PeerError(*failure_);
  throw PeerError("timeout after " + std::to_string(timeout.count()) + " ms waiting for " +
                  std::string(key));
}

std::int64_t InprocStore::add(std::string_view key, std::int64_t amount) {
  const std::lock_guard lock(mutex_);
  std::string& value = values_.try_emplace(std::string(key), "0").first->second;
  const std::int64_t sum = std::stoll(value) + amount;
  value = std::to_string(sum);
  changed_.notify_all();
  return sum;
}

void InprocStore::remove(std::string_view key) {
  const std::lock_guard lock(mutex_);
  if (const auto found = values_.find(key); found != values_.end()) values_.erase(found);
}

void InprocStore::fail(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = reason;
  changed_.notify_all();
}

}  // namespace backends
