// The group of ranks that are processes: joined through rank 0's store, watched, and a maker of communicators.
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "backends/backend_error.h"
#include "backends/backend_table.h"
#include "backends/group.h"
#include "backends/guarded_communicator.h"
#include "backends/rendezvous/host_identity.h"
#include "backends/rendezvous/join.h"
#include "backends/single/single_communicator.h"

namespace backends {
namespace {

constexpr auto kGoodbyeTime = std::chrono::seconds(5);

// Passes the store's news of a death to the communicators. Does not own the store: the store's own thread may be the last
// to let go of this.
class ProcessWatch final : public FailureWatch {
 public:
  explicit ProcessWatch(std::weak_ptr<TcpStore> store) : store_(std::move(store)) {}

  std::optional<std::string> known_failure(std::chrono::milliseconds wait) override {
    const auto store = store_.lock();
    return store ? store->wait_for_failure(wait) : std::nullopt;
  }
  void enlist(Communicator& communicator) override {
    const std::lock_guard lock(mutex_);
    enlisted_.push_back(&communicator);
    const auto store = store_.lock();
    if (const auto failure = store ? store->failure() : std::nullopt) communicator.abort(*failure);
  }
  void dismiss(Communicator& communicator) noexcept override {
    const std::lock_guard lock(mutex_);
    std::erase(enlisted_, &communicator);
  }
  void keep_until_goodbye(std::shared_ptr<void> resource) noexcept override {
    const std::lock_guard lock(mutex_);
    try {
      kept_.push_back(std::move(resource));
    } catch (const std::bad_alloc&) {
      // Then it ends now.
    }
  }
  void release() noexcept {
    std::vector<std::shared_ptr<void>> kept;
    const std::lock_guard lock(mutex_);
    kept.swap(kept_);
  }
  void failed(const std::string& text) {
    const std::lock_guard lock(mutex_);
    for (Communicator* c : enlisted_) c->abort(text);
  }

 private:
  const std::weak_ptr<TcpStore> store_;
  std::mutex mutex_;
  std::vector<Communicator*> enlisted_;
  std::vector<std::shared_ptr<void>> kept_;
};

class ProcessGroup final : public Group {
 public:
  ProcessGroup(const GroupOptions& options, BackendChoice choice, JoinedStore joined)
      : options_(options),
        choice_(std::move(choice)),
        joined_(std::move(joined)),
        watch_(std::make_shared<ProcessWatch>(joined_.store)) {
    peers_ = joined_.store->peers();
    joined_.store->on_failure([watch = std::weak_ptr<ProcessWatch>(watch_)](const std::string& text) {
      if (const auto alive = watch.lock()) alive->failed(text);
    });
  }

  ~ProcessGroup() override { watch_->release(); }

  int rank() const override { return options_.rank; }
  int world_size() const override { return options_.world_size; }
  const std::vector<PeerInfo>& peers() const override { return peers_; }
  std::string backend() const override { return choice_.name; }
  std::string backend_reason() const override { return choice_.reason; }

  std::unique_ptr<Communicator> make_communicator() override {
    const BackendContext context{options_.rank,
                                 options_.world_size,
                                 *joined_.store,
                                 *watch_,
                                 "communicator/" + std::to_string(communicators_++),
                                 joined_.address,
                                 std::chrono::milliseconds(options_.timeout_ms)};
    try {
      return guard(choice_.backend->create(context), watch_);
    } catch (const std::exception& error) {
      throw PeerError(explain_failure(*watch_, choice_.name, rank(), world_size(), "connecting the ranks", error.what()));
    }
  }

  void set_activity(std::string_view activity) noexcept override { joined_.store->set_activity(activity); }
  void check() override {
    if (const auto failure = joined_.store->failure()) throw PeerError(*failure);
  }
  void leave() override {
    joined_.store->leave(kGoodbyeTime);
    watch_->release();
  }

 private:
  const GroupOptions options_;
  const BackendChoice choice_;
  JoinedStore joined_;
  std::shared_ptr<ProcessWatch> watch_;
  std::vector<PeerInfo> peers_;
  int communicators_ = 0;
};

class SingleGroup final : public Group {
 public:
  explicit SingleGroup(std::string reason) : reason_(std::move(reason)), peers_{{0, host_name(), getpid()}} {}
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  const std::vector<PeerInfo>& peers() const override { return peers_; }
  std::string backend() const override { return "single"; }
  std::string backend_reason() const override { return reason_; }
  std::unique_ptr<Communicator> make_communicator() override { return make_single_communicator(); }
  void set_activity(std::string_view) noexcept override {}
  void check() override {}
  void leave() override {}

 private:
  const std::string reason_;
  const std::vector<PeerInfo> peers_;
};

void validate(const GroupOptions& o) {
  const auto bad = [](const std::string& what, int found, const std::string& expected) {
    throw ConfigurationError(what + " " + std::to_string(found) + ": expected " + expected);
  };
  if (o.world_size < 1) bad("world size", o.world_size, "1 or more");
  if (o.rank < 0 || o.rank >= o.world_size) bad("rank", o.rank, "0 to " + std::to_string(o.world_size - 1));
  if (o.heartbeat_ms < 10) bad("heartbeat of ms", o.heartbeat_ms, "10 or more");
  if (o.timeout_ms < 1) bad("timeout of ms", o.timeout_ms, "1 or more");
  if (o.rendezvous_timeout_ms < 1) bad("rendezvous timeout of ms", o.rendezvous_timeout_ms, "1 or more");
  for (const std::string* text : {&o.job_id, &o.build_id, &o.config_digest}) {
    if (text->size() > 100)
      throw ConfigurationError("\"" + *text + "\" is too long for the handshake: expected 100 characters at most");
  }
}

}  // namespace

std::unique_ptr<Group> join_group(const GroupOptions& options) {
  validate(options);
  BackendChoice choice = choose_backend(options.backend, options.world_size);
  if (choice.backend == nullptr) return std::make_unique<SingleGroup>(choice.reason);
  return std::make_unique<ProcessGroup>(options, std::move(choice), join_store(options));
}

}  // namespace backends
