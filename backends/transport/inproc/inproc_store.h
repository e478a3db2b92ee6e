// The store of ranks that are threads: a map with a condition variable.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>

#include "backends/store.h"

namespace backends {

class InprocStore final : public Store {
 public:
  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override;
  std::int64_t add(std::string_view key, std::int64_t amount) override;
  void remove(std::string_view key) override;
  // From now on get() throws PeerError with this reason instead of waiting.
  void fail(const std::string& reason);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> values_;
  std::optional<std::string> failure_;
};

}  // namespace backends
