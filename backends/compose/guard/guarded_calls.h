// The guarded calls that Communicator and DeviceCommunicator share.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "backends/backend_error.h"
#include "backends/compose/guard/guarded_communicator.h"
#include "io/base/time/trace.h"

namespace backends {

// `Interface` is Communicator or a class derived from it.
template <typename Interface>
class GuardedCalls : public Interface {
 public:
  GuardedCalls(std::unique_ptr<Interface> inner, Guard by)
      : by_(std::move(by)), inner_(std::move(inner)) {
    by_.watch->abort_on_failure(*inner_);
  }
  ~GuardedCalls() override { by_.watch->forget(*inner_); }

  std::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }

  void all_reduce(void* data, std::size_t count, DType type, ReduceOp op) override {
    run(reduction_word(Operation::kAllReduce, ++sequence_, count, type, op),
        [&] { inner_->all_reduce(data, count, type, op); });
  }
  void broadcast(void* data, std::size_t bytes, int root) override {
    if (root < 0 || root >= world_size())
      throw MismatchError("broadcast of " + std::to_string(bytes) + " bytes from rank " +
                          std::to_string(root) + ": no such rank in a world of " +
                          std::to_string(world_size()));
    run(transfer_word(Operation::kBroadcast, ++sequence_, bytes, root),
        [&] { inner_->broadcast(data, bytes, root); });
  }
  void all_gather(const void* input, std::size_t bytes, void* output) override {
    run(transfer_word(Operation::kAllGather, ++sequence_, bytes),
        [&] { inner_->all_gather(input, bytes, output); });
  }
  void reduce_scatter(void* data, std::size_t count, DType type, ReduceOp op) override {
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
      // Out of memory: the error contains the backend's reason.
    }
    inner_->abort(reason);
  }

 protected:
  Interface& inner() const { return *inner_; }
  std::uint32_t next_sequence() { return ++sequence_; }

  // Formats the text only on failure.
  template <typename Call>
  void run(const ControlWord& word, const Call& call) {
    const auto text = [&] { return to_string(word); };
    if (broken_) throw PeerError(context(text()) + "this communicator has failed before");
    const base::TraceSpan span(to_string(word.operation).data(),  // a string literal
                               {"count", static_cast<std::int64_t>(word.count)}, trace_call(word));
    const FlightRecorder::Ticket ticket = by_.recorder->begin(by_.communicator, word);
    try {
      explain(text, call);
    } catch (const std::exception&) {
      by_.recorder->end(ticket, true);
      throw;
    }
    by_.recorder->end(ticket, false);
  }

  // Runs `call` and adds rank and operation to its errors. text() returns the description of the
  // call.
  template <typename Text, typename Call>
  void explain(const Text& text, const Call& call) {
    try {
      call();
    } catch (const MismatchError& error) {
      broken_ = true;
      by_.watch->report_mismatch(error.what());
      throw MismatchError(context(text()) + error.what());
    } catch (const ConfigurationError& error) {
      broken_ = true;
      throw ConfigurationError(context(text()) + error.what());
    } catch (const std::exception& error) {
      broken_ = true;
      const std::string aborted = abort_reason();
      const auto known = by_.watch->known_failure(std::chrono::milliseconds(0));
      if (!aborted.empty() && !(known && known->mismatch))
        throw LostPeerError(context(text()) + aborted);
      raise_explained(*by_.watch, by_.detection_time, context(text()), error.what());
    }
  }

 private:
  // All ranks make the communicators of the whole group in the same order, so that their calls have
  // unique numbers. Communicators of different subsets of ranks can share a number, so they get
  // none.
  std::uint64_t trace_call(const ControlWord& word) const {
    if (by_.world_size == 1 || inner_->world_size() != by_.world_size) return 0;
    return static_cast<std::uint64_t>(by_.communicator + 1) << 32 | word.sequence;
  }

  std::string context(const std::string& operation) const {
    return failure_context(name(), by_.rank, by_.world_size, operation);
  }

  std::string abort_reason() const {
    const std::lock_guard lock(mutex_);
    return abort_reason_;
  }

  const Guard by_;  // its watch outlives inner_
  std::unique_ptr<Interface> inner_;
  std::uint32_t sequence_ = 0;  // this and the next are used by the caller's thread
  bool broken_ = false;
  mutable std::mutex mutex_;
  std::string abort_reason_;
};

}  // namespace backends
