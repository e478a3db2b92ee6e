// The guarded calls that Communicator and DeviceCommunicator share.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "backends/backend_error.h"
#include "backends/compose/guard/guarded_communicator.h"
#include "backends/transport/socket/link_counters.h"
#include "io/base/time/trace.h"

namespace backends {

// `Interface` is Communicator or a class derived from it.
template <typename Interface>
class GuardedCalls : public Interface, public LinkCounterSource {
 public:
  GuardedCalls(std::unique_ptr<Interface> inner, Guard by)
      : by_(std::move(by)), inner_(std::move(inner)) {
    by_.watch->abort_on_failure(*inner_);
    if (by_.departures)
      calls_ = by_.departures->add(by_.name, by_.members,
                                   [this](const std::string& why) { end_with(why, why); });
  }
  ~GuardedCalls() override {
    if (calls_) by_.departures->remove(calls_);
    by_.watch->forget(*inner_);
  }

  std::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  std::optional<LinkCounters> link_counters(int peer) const override {
    return link_counters_of(*inner_, peer);
  }

  void run(const Call& call) override {
    guard(call.word, [&] { inner_->run(call); });
  }
  void abort(std::string_view reason) noexcept override {
    try {
      end_with("aborted: " + std::string(reason), reason);
    } catch (const std::exception&) {
      inner_->abort(reason);  // out of memory: the error contains the backend's reason
    }
  }

 protected:
  Interface& inner() const { return *inner_; }

  // Runs `body`, which makes the call of this word. Formats the text only on failure.
  template <typename Body>
  void guard(const ControlWord& word, const Body& body) {
    const auto text = [&] { return to_string(word); };
    if (broken_) throw PeerError(context(text()) + "this communicator has failed before");
    const base::TraceSpan span(to_string(word.operation).data(),  // a string literal
                               {"count", static_cast<std::int64_t>(word.count)}, trace_call(word));
    const FlightRecorder::Ticket ticket = by_.recorder->begin(by_.communicator, word);
    try {
      if (calls_ && calls_->begin(word.sequence)) {
        broken_ = true;
        throw LostPeerError(context(text()) + calls_->why(word.sequence));
      }
      explain(text, body);
    } catch (const std::exception&) {
      by_.recorder->end(ticket, true);
      throw;
    }
    by_.recorder->end(ticket, false);
  }

  // Runs `body` and adds rank and operation to its errors. text() returns the description of the
  // call.
  template <typename Text, typename Body>
  void explain(const Text& text, const Body& body) {
    try {
      body();
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
        throw LostPeerError(context(text()) + aborted + further_cause());
      // A timeout is exact rather than explained; it is mostly long enough for both.
      raise_explained(*by_.watch, is_over() ? std::chrono::milliseconds(0) : by_.detection_time,
                      context(text()), error.what() + further_cause());
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

  std::string further_cause() const { return by_.further_cause ? by_.further_cause() : ""; }

  std::string context(const std::string& operation) const {
    return failure_context(name(), by_.rank, by_.world_size, operation);
  }

  // Returns true if the call has reached its timeout.
  bool is_over() const {
    const auto running = by_.recorder->running();
    return by_.timeout.count() > 0 && running &&
           running->waited_us >= 1000 * static_cast<std::int64_t>(by_.timeout.count());
  }

  // Ends the current and future calls with this text.
  void end_with(const std::string& text, std::string_view reason) {
    {
      const std::lock_guard lock(mutex_);
      if (abort_reason_.empty()) abort_reason_ = text;
    }
    inner_->abort(reason);
  }

  std::string abort_reason() const {
    const std::lock_guard lock(mutex_);
    return abort_reason_;
  }

  const Guard by_;  // its watch outlives inner_
  std::unique_ptr<Interface> inner_;
  bool broken_ = false;  // used by the caller's thread
  mutable std::mutex mutex_;
  std::string abort_reason_;
  std::shared_ptr<Departures::Calls> calls_;  // nullptr without departures
};

}  // namespace backends
