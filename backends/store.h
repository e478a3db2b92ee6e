// The key-value store for the rendezvous of the ranks of one job. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace backends {

class Store {
 public:
  virtual ~Store() = default;
  virtual void set(std::string_view key, std::string_view value) = 0;
  // Waits until the key exists. Throws PeerError that names the key at the deadline.
  virtual std::string get(std::string_view key, std::chrono::milliseconds timeout) = 0;
  // Adds to an integer key (absent: 0) and returns the new value.
  virtual std::int64_t add(std::string_view key, std::int64_t amount) = 0;
  virtual void remove(std::string_view key) = 0;
};

}  // namespace backends
