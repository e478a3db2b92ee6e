// A store in memory, for links that are tested without a group.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "backends/backend_error.h"
#include "backends/store.h"

namespace map_store {

class MapStore final : public backends::Store {
 public:
  std::function<void(const std::string& key, const std::string& value)>
      seen;  // told of every set()
  std::function<std::string(const std::string& key, const std::string& value)>
      change;  // makes what get() returns
  std::function<std::int64_t(const std::string& key, std::int64_t value)>
      change_sum;  // makes what add() returns

  void set(std::string_view key, std::string_view value) override {
    if (seen) seen(std::string(key), std::string(value));
    const std::lock_guard lock(mutex_);
    values_[std::string(key)] = value;
    changed_.notify_all();
  }
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    const std::string name(key);
    if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(name); }))
      throw backends::PeerError("no key " + name);
    return change ? change(name, values_[name]) : values_[name];
  }
  std::int64_t add(std::string_view key, std::int64_t amount) override {
    const std::lock_guard lock(mutex_);
    std::string& value = values_[std::string(key)];
    value = std::to_string((value.empty() ? 0 : std::stoll(value)) + amount);
    changed_.notify_all();
    const std::int64_t sum = std::stoll(value);
    return change_sum ? change_sum(std::string(key), sum) : sum;
  }
  void remove(std::string_view key) override {
    const std::lock_guard lock(mutex_);
    values_.erase(std::string(key));
  }
  std::size_t size() {
    const std::lock_guard lock(mutex_);
    return values_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace map_store
