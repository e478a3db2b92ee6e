// The guard around a backend's communicator.
#include "backends/guarded_communicator.h"

#include <mutex>

#include "backends/backend_error.h"

namespace backends {
namespace {

constexpr auto kVerdictTime = std::chrono::seconds(2);

std::string context_text(std::string_view backend, int rank, int world_size, const std::string& operation) {
  return "backend " + std::string(backend) + ", rank " + std::to_string(rank) + " of " + std::to_string(world_size) + ", " +
         operation + ": ";
}

class GuardedCommunicator final : public Communicator {
 public:
  GuardedCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<FailureWatch> watch)
      : watch_(std::move(watch)), inner_(std::move(inner)) {
    watch_->enlist(*inner_);
  }
  ~GuardedCommunicator() override { watch_->dismiss(*inner_); }

  std::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }

  void all_reduce(void* data, std::size_t count, DataType type, ReduceOp op) override {
    run([&] { return reduction("all_reduce", count, type, op); }, [&] { inner_->all_reduce(data, count, type, op); });
  }
  void broadcast(void* data, std::size_t bytes, int root) override {
    const auto describe = [&] {
      return "broadcast of " + std::to_string(bytes) + " bytes from rank " + std::to_string(root);
    };
    if (root < 0 || root >= world_size())
      throw MismatchError(describe() + ": no such rank in a world of " + std::to_string(world_size()));
    run(describe, [&] { inner_->broadcast(data, bytes, root); });
  }
  void all_gather(const void* input, std::size_t bytes, void* output) override {
    run([&] { return "all_gather of " + std::to_string(bytes) + " bytes"; },
        [&] { inner_->all_gather(input, bytes, output); });
  }
  void reduce_scatter(void* data, std::size_t count, DataType type, ReduceOp op) override {
    run([&] { return reduction("reduce_scatter", count, type, op); },
        [&] { inner_->reduce_scatter(data, count, type, op); });
  }
  void barrier() override {
    run([] { return std::string("barrier"); }, [&] { inner_->barrier(); });
  }
  void abort(std::string_view reason) noexcept override {
    try {
      const std::lock_guard lock(mutex_);
      if (abort_reason_.empty()) abort_reason_.assign("aborted: ").append(reason);
    } catch (const std::exception&) {
      // Out of memory: the error will give the backend's reason.
    }
    inner_->abort(reason);
  }

 private:
  static std::string reduction(const char* what, std::size_t count, DataType type, ReduceOp op) {
    return std::string(what) + " " + std::string(to_string(op)) + " of " + std::to_string(count) + " " +
           std::string(to_string(type));
  }

  // `describe` is called on failure only: a call that succeeds builds no text.
  template <typename Describe, typename Call>
  void run(const Describe& describe, const Call& call) {
    if (broken_)
      throw PeerError(context_text(name(), rank(), world_size(), describe()) + "this communicator has failed before");
    try {
      call();
    } catch (const MismatchError&) {
      broken_ = true;
      throw;
    } catch (const std::exception& error) {
      broken_ = true;
      const std::string aborted = abort_reason();
      if (!aborted.empty()) throw PeerError(context_text(name(), rank(), world_size(), describe()) + aborted);
      throw PeerError(explain_failure(*watch_, name(), rank(), world_size(), describe(), error.what()));
    }
  }

  std::string abort_reason() const {
    const std::lock_guard lock(mutex_);
    return abort_reason_;
  }

  std::shared_ptr<FailureWatch> watch_;  // outlives inner_
  std::unique_ptr<Communicator> inner_;
  bool broken_ = false;  // caller's thread
  mutable std::mutex mutex_;
  std::string abort_reason_;
};

}  // namespace

std::unique_ptr<Communicator> guard(std::unique_ptr<Communicator> inner, std::shared_ptr<FailureWatch> watch) {
  return std::make_unique<GuardedCommunicator>(std::move(inner), std::move(watch));
}

std::string explain_failure(FailureWatch& watch, std::string_view backend, int rank, int world_size,
                            const std::string& operation, const std::string& error) {
  const std::optional<std::string> verdict = watch.known_failure(kVerdictTime);
  return context_text(backend, rank, world_size, operation) + (verdict ? *verdict : error);
}

}  // namespace backends
