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
  GuardedCommunicator(std::unique_ptr<Communicator> inner, Guard by) : by_(std::move(by)), inner_(std::move(inner)) {
    by_.watch->enlist(*inner_);
  }
  ~GuardedCommunicator() override { by_.watch->dismiss(*inner_); }

  std::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }

  void all_reduce(void* data, std::size_t count, DataType type, ReduceOp op) override {
    run(reduction_word(Operation::kAllReduce, ++sequence_, count, type, op), [&] { inner_->all_reduce(data, count, type, op); });
  }
  void broadcast(void* data, std::size_t bytes, int root) override {
    if (root < 0 || root >= world_size())
      throw MismatchError("broadcast of " + std::to_string(bytes) + " bytes from rank " + std::to_string(root) +
                          ": no such rank in a world of " + std::to_string(world_size()));
    run(transfer_word(Operation::kBroadcast, ++sequence_, bytes, root), [&] { inner_->broadcast(data, bytes, root); });
  }
  void all_gather(const void* input, std::size_t bytes, void* output) override {
    run(transfer_word(Operation::kAllGather, ++sequence_, bytes), [&] { inner_->all_gather(input, bytes, output); });
  }
  void reduce_scatter(void* data, std::size_t count, DataType type, ReduceOp op) override {
    run(reduction_word(Operation::kReduceScatter, ++sequence_, count, type, op),
        [&] { inner_->reduce_scatter(data, count, type, op); });
  }
  void barrier() override {
    run(transfer_word(Operation::kBarrier, ++sequence_, 0), [&] { inner_->barrier(); });
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
  // Text is made on failure only.
  template <typename Call>
  void run(const ControlWord& word, const Call& call) {
    if (broken_) throw PeerError(context(word) + "this communicator has failed before");
    const FlightRecorder::Ticket ticket = by_.recorder->begin(by_.communicator, word);
    try {
      call();
    } catch (const MismatchError& error) {
      fail(ticket);
      throw MismatchError(context(word) + error.what());
    } catch (const std::exception& error) {
      fail(ticket);
      const std::string aborted = abort_reason();
      if (!aborted.empty()) throw PeerError(context(word) + aborted);
      throw PeerError(explain_failure(*by_.watch, name(), by_.rank, by_.world_size, to_string(word), error.what()));
    }
    by_.recorder->end(ticket, false);
  }

  void fail(FlightRecorder::Ticket ticket) {
    broken_ = true;
    by_.recorder->end(ticket, true);
  }
  std::string context(const ControlWord& word) const { return context_text(name(), by_.rank, by_.world_size, to_string(word)); }

  std::string abort_reason() const {
    const std::lock_guard lock(mutex_);
    return abort_reason_;
  }

  const Guard by_;  // its watch outlives inner_
  std::unique_ptr<Communicator> inner_;
  std::uint32_t sequence_ = 0;  // this and the next: caller's thread
  bool broken_ = false;
  mutable std::mutex mutex_;
  std::string abort_reason_;
};

}  // namespace

std::unique_ptr<Communicator> guard(std::unique_ptr<Communicator> inner, Guard by) {
  return std::make_unique<GuardedCommunicator>(std::move(inner), std::move(by));
}

std::string explain_failure(FailureWatch& watch, std::string_view backend, int rank, int world_size, const std::string& operation,
                            const std::string& error) {
  const std::optional<std::string> verdict = watch.known_failure(kVerdictTime);
  // The verdict may be of a rank that only followed another into failure; what was seen here may name that one.
  std::string what = error;
  if (verdict && error.find(*verdict) == std::string::npos) what = *verdict + " (seen here: " + error + ")";
  return context_text(backend, rank, world_size, operation) + what;
}

}  // namespace backends
