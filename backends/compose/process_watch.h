// Aborts the communicators of a process when its store reports a failure.
#pragma once

#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "backends/communicator.h"
#include "backends/store/store_client.h"

namespace backends {

// Does not own the store, because the store's own thread may release the last reference to this.
class ProcessWatch final : public FailureDetector {
 public:
  explicit ProcessWatch(std::weak_ptr<TcpStore> store) : store_(std::move(store)) {}

  std::optional<GroupFailure> known_failure(std::chrono::milliseconds wait) override {
    {
      const std::lock_guard lock(mutex_);
      if (interrupted_) return GroupFailure{*interrupted_};
    }
    const auto store = store_.lock();
    return store ? store->wait_for_failure(wait) : std::nullopt;
  }
  void report_mismatch(const std::string& text) override {
    if (const auto store = store_.lock()) store->abandon({text, true});
  }
  std::string reach_text(int rank) override {
    const auto store = store_.lock();
    return store ? store->reach_text(rank) : std::string();
  }
  bool interrupted() const override {
    const std::lock_guard lock(mutex_);
    return interrupted_.has_value();
  }
  void abort_on_failure(Communicator& communicator) override {
    const std::lock_guard lock(mutex_);
    abort_on_failure_.push_back(&communicator);
    const auto store = store_.lock();
    const auto failure = store ? store->failure() : std::nullopt;
    if (interrupted_) {
      communicator.abort(*interrupted_);
    } else if (failure) {
      communicator.abort(failure->text);
    }
  }
  void forget(Communicator& communicator) noexcept override {
    const std::lock_guard lock(mutex_);
    std::erase(abort_on_failure_, &communicator);
  }
  void retain_until_group_ends(std::shared_ptr<void> resource) noexcept override {
    const std::lock_guard lock(mutex_);
    try {
      kept_.push_back(std::move(resource));
    } catch (const std::bad_alloc&) {
      // Out of memory: destroy it now.
    }
  }
  void release() noexcept {
    std::vector<std::shared_ptr<void>> kept;
    const std::lock_guard lock(mutex_);
    kept.swap(kept_);
  }
  // Describes the communicator that waits; the others are idle and silent as well.
  std::string waiting_text() const {
    const std::lock_guard lock(mutex_);
    CallWait found;
    for (const Communicator* c : abort_on_failure_) {
      CallWait of_one = c->current_wait();
      if (found.text.empty() || of_one.unacknowledged) found = std::move(of_one);
      if (found.unacknowledged) break;
    }
    return found.text;
  }
  void interrupt(const std::string& why) {
    const std::lock_guard lock(mutex_);
    interrupted_ = why;
    for (Communicator* c : abort_on_failure_) c->abort(why);
  }
  void failed(const std::string& text) {
    const std::lock_guard lock(mutex_);
    for (Communicator* c : abort_on_failure_) c->abort(text);
  }

 private:
  const std::weak_ptr<TcpStore> store_;
  mutable std::mutex mutex_;
  std::vector<Communicator*> abort_on_failure_;
  std::vector<std::shared_ptr<void>> kept_;
  std::optional<std::string> interrupted_;
};

}  // namespace backends
