// Implements the barrier, and the reduction of slices in rank order, which gives the same bits in
// any order of arrival.
#include "backends/transport/inproc/inproc_exchange.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "backends/backend_error.h"
#include "backends/reduction.h"
#include "io/base/machine/cpu_affinity.h"
#include "io/base/threads/spin_pause.h"

namespace backends {
namespace {

constexpr int kExchangeSpins = 2000;           // about 10 us
constexpr std::size_t kSumStripBytes = 16384;  // the sum of a strip stays in the first-level cache

}  // namespace

InprocExchange::InprocExchange(int world_size, int timeout_ms, const base::Clock& clock)
    : world_size_(world_size),
      timeout_ms_(timeout_ms),
      clock_(clock),
      spin_(base::count_of_cpus() >= world_size),
      calls_(static_cast<std::size_t>(world_size)),
      arrived_ranks_(static_cast<std::size_t>(world_size), false) {}

void InprocExchange::run(int rank, const Call& call) {
  calls_[static_cast<std::size_t>(rank)] = call;
  begin_call(rank);
  compare(call.word, rank);
  const std::size_t bytes = call.word.count;  // of the operations without a type
  switch (call.word.operation) {
    case Operation::kAllReduce:
      reduce(rank, call.word, true);
      break;
    case Operation::kReduceScatter:
      reduce(rank, call.word, false);
      break;
    case Operation::kBroadcast:
      if (rank != call.word.root && bytes > 0)
        std::memcpy(call.data, calls_[call.word.root].data, bytes);
      break;
    case Operation::kAllGather:
      for (std::size_t r = 0; r < calls_.size() && bytes > 0; ++r)
        std::memmove(static_cast<char*>(call.data) + r * bytes, calls_[r].input, bytes);
      break;
    case Operation::kAllToAll:
      for (std::size_t r = 0; r < calls_.size() && bytes > 0; ++r)
        std::memcpy(
            static_cast<char*>(call.data) + r * bytes,
            static_cast<const char*>(calls_[r].input) + static_cast<std::size_t>(rank) * bytes,
            bytes);
      break;
    case Operation::kBarrier:
    case Operation::kRegister:
      break;
  }
  end_call(rank);
}

// REQUIRES: mutex_ is locked.
std::uint64_t InprocExchange::arrive(int rank) {
  const std::uint64_t complete = generation_.load(std::memory_order_relaxed) + 1;
  arrived_ranks_[static_cast<std::size_t>(rank)] = true;
  if (++arrived_ == world_size_) {
    arrived_ = 0;
    arrived_ranks_.assign(arrived_ranks_.size(), false);
    generation_.store(complete, std::memory_order_release);
    all_arrived_.notify_all();
  }
  return complete;
}

bool InprocExchange::spin_until(std::uint64_t generation) const {
  for (int i = 0; spin_ && i < kExchangeSpins; ++i) {
    if (generation_.load(std::memory_order_acquire) >= generation) return true;
    base::spin_pause();
  }
  return false;
}

void InprocExchange::begin_call(int rank) {
  std::unique_lock lock(mutex_);
  if (aborted_) throw PeerError(reason_);
  const std::uint64_t all = arrive(rank);
  lock.unlock();
  if (spin_until(all)) return;
  lock.lock();
  const auto over = [&] { return aborted_ || generation_.load(std::memory_order_acquire) >= all; };
  const auto deadline = clock_.deadline_in(std::chrono::milliseconds(timeout_ms_));
  while (!all_arrived_.wait_for(lock, clock_.sleep_time(deadline), over) &&
         !clock_.has_passed(deadline)) {
  }
  if (generation_.load(std::memory_order_acquire) >= all) return;
  if (!aborted_) {
    reason_ =
        "timed out after " + std::to_string(timeout_ms_) + " ms, waiting for " + missing_ranks();
    aborted_ = true;  // the others must not continue without this rank
    all_arrived_.notify_all();
  }
  throw PeerError(reason_);
}

// Waits until no rank uses the memory of this one, also after an abort: the caller may then free
// it. All ranks compute and wait for nothing, so there is no deadline.
void InprocExchange::end_call(int rank) noexcept {
  std::unique_lock lock(mutex_);
  const std::uint64_t all = arrive(rank);
  lock.unlock();
  if (spin_until(all)) return;
  lock.lock();
  all_arrived_.wait(lock, [&] { return generation_.load(std::memory_order_acquire) >= all; });
}

std::string InprocExchange::missing_ranks() const {
  std::string ranks;
  for (std::size_t r = 0; r < arrived_ranks_.size(); ++r) {
    if (!arrived_ranks_[r]) ranks += (ranks.empty() ? "rank " : ", ") + std::to_string(r);
  }
  return ranks;
}

void InprocExchange::compare(const ControlWord& word, int rank) const {
  // All ranks compare the same calls, so either all throw or none does, before any payload is used.
  const ControlWord& first = calls_[0].word;
  for (int r = 1; r < world_size_; ++r) {
    const ControlWord& other = calls_[static_cast<std::size_t>(r)].word;
    if (other == first) continue;
    throw MismatchError("collectives differ: rank 0 calls " + to_string(first) + ", rank " +
                        std::to_string(r) + " calls " + to_string(other) + " (seen by rank " +
                        std::to_string(rank) + ", which calls " + to_string(word) + ")");
  }
}

// Only rank r reads and writes slice r of every rank's buffer.
void InprocExchange::reduce(int rank, const ControlWord& word, bool to_all) const {
  alignas(64) char sum[kSumStripBytes];
  const DType type = word.type();
  const std::size_t width = size_of(type);
  const ElementRange slice = slice_of(word.count, rank, world_size_);
  for (std::size_t at = slice.begin; at < slice.end; at += kSumStripBytes / width) {
    const std::size_t count = std::min(kSumStripBytes / width, slice.end - at),
                      bytes = count * width;
    const auto strip = [&](int r) {
      return static_cast<char*>(calls_[static_cast<std::size_t>(r)].data) + at * width;
    };
    std::memcpy(sum, strip(0), bytes);
    for (int r = 1; r < world_size_; ++r) reduce_into(sum, strip(r), count, type, word.op());
    for (int r = 0; r < world_size_; ++r) {
      if (to_all || r == rank) std::memcpy(strip(r), sum, bytes);
    }
  }
}

void InprocExchange::abort(const std::string& reason) noexcept {
  const std::lock_guard lock(mutex_);
  if (aborted_) return;
  reason_ = reason;
  aborted_ = true;
  all_arrived_.notify_all();
}

namespace {

class InprocCommunicator final : public Communicator {
 public:
  InprocCommunicator(std::shared_ptr<InprocExchange> exchange, int rank)
      : exchange_(std::move(exchange)), rank_(rank) {}

  std::string_view name() const override { return "inproc"; }
  int rank() const override { return rank_; }
  int world_size() const override { return exchange_->world_size(); }
  void run(const Call& call) override { exchange_->run(rank_, call); }
  void abort(std::string_view reason) noexcept override {
    exchange_->abort("aborted by rank " + std::to_string(rank_) + ": " + std::string(reason));
  }

 private:
  std::shared_ptr<InprocExchange> exchange_;
  const int rank_;
};

}  // namespace

std::unique_ptr<Communicator> make_inproc_communicator(std::shared_ptr<InprocExchange> exchange,
                                                       int rank) {
  return std::make_unique<InprocCommunicator>(std::move(exchange), rank);
}

}  // namespace backends
