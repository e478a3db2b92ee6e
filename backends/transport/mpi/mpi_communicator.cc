// Implements collectives over MPI.
//
// MPI moves bytes only. Reductions are computed here, in rank order, so that their bits equal those
// of the other backends. Every call begins with an all-gather of the control words. MPI calls are
// nonblocking and polled, because blocking ones have no deadline. A collective that was begun
// cannot be withdrawn from MPI, so MPI gets memory of this file only, which is kept for good after
// a failure.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include "backends/abort_state.h"
#include "backends/backend_error.h"
#include "backends/control_word.h"
#include "backends/reduction.h"
#include "backends/store/awaited_value.h"
#include "backends/transport/mpi/mpi_backend.h"
#include "backends/transport/mpi/mpi_loader.h"

namespace backends {
namespace {

using MpiClock = std::chrono::steady_clock;

// The words of other ranks may be in transfer when this rank ends or is aborted, and MPI transfers
// bytes only while it is called.
constexpr auto kMpiGrace = std::chrono::milliseconds(300);
constexpr int kMpiSpins = 2000;  // polls before this thread sleeps

std::atomic<bool> mpi_has_failed{false};

void start_mpi() {
  mpi_library().start();
  static const int registered = std::atexit([] { mpi_library().finish(mpi_has_failed); });
  static_cast<void>(registered);
}

// The memory that MPI may access at any time, also after the communicator is destroyed.
struct MpiMemory {
  std::unique_ptr<MpiChannel> channel;
  std::vector<ControlWord> words;        // of all ranks; the last one: this rank's, to send
  std::vector<char> outgoing, incoming;  // a block each
  std::vector<int> counts, offsets, own_counts, own_offsets;  // of a block, in bytes
};

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(const BackendContext& context)
      : rank_(context.rank),
        size_(context.world_size),
        members_(context.members),
        timeout_(context.timeout),
        clock_(context.clock),
        piece_bytes_(mpi_piece_bytes(size_)),
        memory_(std::make_unique<MpiMemory>()),
        parts_(static_cast<std::size_t>(size_)) {
    for (std::vector<int>* numbers :
         {&memory_->counts, &memory_->offsets, &memory_->own_counts, &memory_->own_offsets})
      numbers->resize(parts_.size());
    memory_->words.resize(parts_.size() + 1);
    memory_->outgoing.resize((piece_bytes_ + sizeof(double)) * parts_.size());
    memory_->incoming.resize(memory_->outgoing.size());
    connect(context);
  }

  ~MpiCommunicator() override {
    if (failed_) {
      static_cast<void>(memory_.release());  // MPI may still write to it
    } else {
      memory_->channel->free();
    }
  }

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int world_size() const override { return size_; }

  void run(const Call& call) override {
    auto* data = static_cast<char*>(call.data);
    const auto* input = static_cast<const char*>(call.input);
    const std::size_t count = call.word.count;
    compare_words(call.word);
    switch (call.word.operation) {
      case Operation::kAllReduce:
      case Operation::kReduceScatter:
        return reduce(data, count, call.word.type(), call.word.op());
      case Operation::kBroadcast:
        return broadcast_from(call.word.root, data, count);
      case Operation::kAllGather:
        return gather_all(input, count, data);
      case Operation::kAllToAll:
        return exchange_all(input, count, data);
      case Operation::kBarrier:
      case Operation::kRegister:
        break;
    }
  }

  void abort(std::string_view reason) noexcept override {
    if (!abort_.is_aborted()) aborted_at_ = MpiClock::now();
    abort_.abort(reason);
  }

 private:
  // MPI cannot make a communicator with a deadline. So the ranks synchronize through the store
  // first, which has one: then all of them are alive and about to call.
  void connect(const BackendContext& context) {
    start_mpi();
    check_world_size(context);
    const std::string key = context.prefix + "/mpi/";
    const auto deadline = context.clock.deadline_in(context.time_to_connect());
    context.store.set(key + std::to_string(rank_), std::to_string(mpi_library().world_rank()));
    std::vector<int> world_ranks;
    std::set<int> distinct;
    for (int r = 0; r < size_; ++r) {
      const std::string what = "the MPI rank of rank " + std::to_string(context.group_rank(r));
      world_ranks.push_back(
          std::stoi(awaited_value(context, key + std::to_string(r), deadline, what)));
      if (!distinct.insert(world_ranks.back()).second)
        throw ConfigurationError("two ranks are rank " + std::to_string(world_ranks.back()) +
                                 " of MPI's world, one of them rank " +
                                 std::to_string(context.group_rank(r)) +
                                 ": start all ranks by one mpirun");
    }
    if (rank_ == 0)
      context.store.set(key + "tag", std::to_string(context.store.add("mpi/tag", 1) % 32768));
    const int tag =
        std::stoi(awaited_value(context, key + "tag", deadline,
                                "the MPI tag of rank " + std::to_string(context.group_rank(0))));
    memory_->channel = mpi_library().connect(world_ranks, tag);
  }

  void check_world_size(const BackendContext& context) const {
    const int world = mpi_library().world_size();
    const std::string text = describe_mpi() + " has a world of " + std::to_string(world) +
                             (world == 1 ? " rank" : " ranks") + ", this job has " +
                             std::to_string(context.group_size);
    if (world < context.group_size)
      throw ConfigurationError(text +
                               ": start all ranks by the mpirun of this library, or name the "
                               "library of this mpirun by ENGINE_MPI_LIBRARY");
    static std::atomic<bool> reported{false};
    if (world > context.group_size && context.notice && rank_ == 0 && !reported.exchange(true))
      context.notice(text);
  }

  // Begins one nonblocking call and waits for its end.
  template <typename Begin>
  void finish(const char* call, const Begin& begin) {
    const auto deadline = clock_.deadline_in(timeout_);
    try {
      begin(*memory_->channel);
      for (int spin = 0; !memory_->channel->is_complete(); ++spin) {
        if (abort_.is_aborted() && MpiClock::now() >= aborted_at_.load() + kMpiGrace)
          abort_.throw_if_aborted();
        if (spin < kMpiSpins) {
          sched_yield();
        } else {
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
        if (clock_.has_passed(deadline))
          throw PeerError("timeout after " + std::to_string(timeout_.count()) + " ms in " + call +
                          ", waiting for " + other_ranks());
      }
    } catch (const PeerError&) {
      failed_ = mpi_has_failed = true;
      throw;
    }
  }

  std::string other_ranks() const {  // MPI does not report which one is missing
    std::string text = "one of the ranks";
    for (const int r : members_) {
      if (r != members_[static_cast<std::size_t>(rank_)]) text += " " + std::to_string(r);
    }
    return text;
  }

  void compare_words(const ControlWord& word) {
    const auto own = static_cast<std::size_t>(rank_);
    memory_->words.back() = word;
    finish("MPI_Iallgather", [&](MpiChannel& mpi) {
      mpi.begin_all_gather(&memory_->words.back(), sizeof word, memory_->words.data());
    });
    try {
      for (std::size_t r = 0; r < parts_.size(); ++r)
        expect_equal(word, members_[own], memory_->words[r], members_[r]);
    } catch (const MismatchError&) {
      for (const auto end = MpiClock::now() + kMpiGrace; MpiClock::now() < end; sched_yield())
        memory_->channel->progress();
      throw;
    }
  }

  void broadcast_from(int root, char* data, std::size_t bytes) {
    char *at = data, *end = data + bytes, *block = memory_->outgoing.data();
    for (std::size_t n = 0; at < end; at += n) {
      n = std::min(static_cast<std::size_t>(end - at), memory_->outgoing.size());
      if (rank_ == root) std::memcpy(block, at, n);
      finish("MPI_Ibcast",
             [&](MpiChannel& mpi) { mpi.begin_broadcast(block, static_cast<int>(n), root); });
      if (rank_ != root) std::memcpy(at, block, n);
    }
  }

  void gather_all(const char* input, std::size_t bytes, char* output) {
    for (std::size_t at = 0, n = 0; at < bytes; at += n) {
      n = std::min(bytes - at, piece_bytes_);
      std::memcpy(memory_->outgoing.data(), input + at, n);
      finish("MPI_Iallgather", [&](MpiChannel& mpi) {
        mpi.begin_all_gather(memory_->outgoing.data(), static_cast<int>(n),
                             memory_->incoming.data());
      });
      take_pieces(output + at, bytes, n);
    }
  }

  void exchange_all(const char* input, std::size_t bytes, char* output) {
    for (std::size_t at = 0, n = 0; at < bytes; at += n) {
      n = std::min(bytes - at, piece_bytes_);
      for (std::size_t r = 0; r < parts_.size(); ++r)
        std::memcpy(memory_->outgoing.data() + r * n, input + r * bytes + at, n);
      finish("MPI_Ialltoall", [&](MpiChannel& mpi) {
        mpi.begin_all_to_all(memory_->outgoing.data(), static_cast<int>(n),
                             memory_->incoming.data());
      });
      take_pieces(output + at, bytes, n);
    }
  }

  // Copies a piece of each rank, which is `bytes` long, to its place in the output.
  void take_pieces(char* output, std::size_t distance, std::size_t bytes) const {
    for (std::size_t r = 0; r < parts_.size(); ++r)
      std::memcpy(output + r * distance, memory_->incoming.data() + r * bytes, bytes);
  }

  // In each block, slice r of all ranks is sent to rank r, which reduces them and sends the result
  // to all ranks.
  void reduce(char* data, std::size_t count, DType type, ReduceOp op) {
    const std::size_t width = size_of(type), max_count = piece_bytes_ / width * parts_.size();
    for (std::size_t at = 0, n = 0; at < count; at += n) {
      n = std::min(count - at, max_count);
      reduce_block(data + at * width, n, type, op);
    }
  }

  void reduce_block(char* block, std::size_t count, DType type, ReduceOp op) {
    const std::size_t width = size_of(type);
    char *outgoing = memory_->outgoing.data(), *incoming = memory_->incoming.data();
    const ElementRange own = slice_of(count, rank_, size_);
    const int own_bytes = static_cast<int>(own.count() * width);
    for (int r = 0; r < size_; ++r) {
      const auto at = static_cast<std::size_t>(r);
      const ElementRange theirs = slice_of(count, r, size_);
      memory_->counts[at] = static_cast<int>(theirs.count() * width);
      memory_->offsets[at] = static_cast<int>(theirs.begin * width);
      memory_->own_counts[at] = own_bytes;
      memory_->own_offsets[at] = r * own_bytes;
      parts_[at] = incoming + static_cast<std::size_t>(memory_->own_offsets[at]);
    }
    std::memcpy(outgoing, block, count * width);
    finish("MPI_Ialltoallv", [&](MpiChannel& mpi) {
      mpi.begin_all_to_all_blocks(
          {outgoing, memory_->counts.data(), memory_->offsets.data()},
          {incoming, memory_->own_counts.data(), memory_->own_offsets.data()});
    });
    reduce_parts(outgoing, parts_.data(), size_, own.count(), type, op);
    finish("MPI_Iallgatherv", [&](MpiChannel& mpi) {
      mpi.begin_all_gather_blocks(outgoing, own_bytes,
                                  {incoming, memory_->counts.data(), memory_->offsets.data()});
    });
    std::memcpy(block, incoming, count * width);
  }

  const int rank_, size_;
  const std::vector<int> members_;
  const std::chrono::milliseconds timeout_;
  const base::Clock& clock_;
  const std::size_t piece_bytes_;  // one rank's part of a block
  std::unique_ptr<MpiMemory> memory_;
  std::vector<const void*> parts_;
  bool failed_ = false;
  std::atomic<MpiClock::time_point> aborted_at_{};
  AbortState abort_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(const BackendContext& context) {
  return std::make_unique<MpiCommunicator>(context);
}

}  // namespace backends
