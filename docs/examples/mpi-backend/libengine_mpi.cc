// An example of a backend outside the tree: the collectives over MPI. docs/backend-plugins.md
// explains it.
//
// MPI moves bytes, nothing else: folds are ours, in rank order, so that the bits equal those of
// every other backend. A call begins with an all-gather of the control words. Every MPI call is
// nonblocking and polled, because a blocking one knows no deadline. MPI cannot take back a
// collective that was begun, so it only ever sees memory of this library: after a failure that
// memory is kept for good.
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include "backends/backend_error.h"
#include "backends/compose/plugin/backend_plugin.h"
#include "backends/control_word.h"
#include "backends/reduction.h"

namespace {

using namespace backends;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kPieceBytes = 256 << 10;  // of one rank in a block
// For the words of others that are on their way when this rank ends or is aborted: MPI moves bytes
// only while it is called.
constexpr auto kGrace = std::chrono::milliseconds(300);
constexpr int kSpins = 2000;  // polls before the processor is left to others for longer

// One MPI call at a time in this process: MPI_THREAD_SERIALIZED is then enough, which every MPI
// has.
std::mutex mpi_mutex;
std::atomic<bool> anything_failed{false};

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw PeerError(std::string(call) + ": " + std::string(text, static_cast<std::size_t>(length)));
}

// Ends MPI with the process, unless a peer may be missing, for which MPI_Finalize would wait.
void finish_mpi() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized && !anything_failed) MPI_Finalize();
}

void start_mpi() {
  int started = 0, level = 0;
  check(MPI_Initialized(&started), "MPI_Initialized");
  if (!started) {
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    std::atexit(&finish_mpi);
  } else {
    check(MPI_Query_thread(&level), "MPI_Query_thread");
  }
  if (level < MPI_THREAD_SERIALIZED)
    throw ConfigurationError("this MPI allows calls from one thread only");
}

// What MPI may use at any time, also after its communicator is gone.
struct Wire {
  MPI_Comm comm = MPI_COMM_NULL;
  std::vector<ControlWord> words;        // of all ranks; the last place: what this rank sends
  std::vector<char> outgoing, incoming;  // a block each
};

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(const BackendContext& context)
      : rank_(context.rank),
        size_(context.world_size),
        members_(context.members),
        timeout_(context.timeout),
        clock_(context.clock),
        wire_(std::make_unique<Wire>()),
        parts_(static_cast<std::size_t>(size_)),
        counts_(static_cast<std::size_t>(size_)),
        offsets_(counts_),
        own_counts_(counts_),
        own_offsets_(counts_) {
    wire_->words.resize(parts_.size() + 1);
    wire_->outgoing.resize((kPieceBytes + sizeof(double)) * parts_.size());
    wire_->incoming.resize(wire_->outgoing.size());
    connect(context);
  }

  ~MpiCommunicator() override {
    const std::lock_guard lock(mpi_mutex);
    if (failed_ || wire_->comm == MPI_COMM_NULL) {
      static_cast<void>(wire_.release());  // MPI may still write to it
      return;
    }
    MPI_Comm_free(&wire_->comm);
  }

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int world_size() const override { return size_; }

  void run(const Call& call) override {
    auto* data = static_cast<char*>(call.data);
    const std::size_t count = call.word.count;
    meet(call.word);
    switch (call.word.operation) {
      case Operation::kAllReduce:
      case Operation::kReduceScatter:
        return reduce(data, count, call.word.type(), call.word.op());
      case Operation::kBroadcast:
        return broadcast_from(call.word.root, data, count);
      case Operation::kAllGather:
        return gather_all(static_cast<const char*>(call.input), count, data);
      case Operation::kAllToAll:
        return exchange_all(static_cast<const char*>(call.input), count, data);
      case Operation::kBarrier:
      case Operation::kRegister:
        break;
    }
  }

  void abort(std::string_view) noexcept override {
    if (!aborted_) aborted_at_ = Clock::now();
    aborted_ = true;
  }

 private:
  // MPI has no way to make a communicator with a deadline. So the ranks meet in the store first,
  // which has one: from there on all of them are known to be alive and about to call.
  void connect(const BackendContext& context) {
    int world_rank = 0, world_size = 0;
    {
      const std::lock_guard lock(mpi_mutex);
      start_mpi();
      check(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank), "MPI_Comm_rank");
      check(MPI_Comm_size(MPI_COMM_WORLD, &world_size), "MPI_Comm_size");
    }
    if (world_size < size_)
      throw ConfigurationError("MPI knows " + std::to_string(world_size) + " ranks, expected " +
                               std::to_string(size_) + " or more: start them with mpirun -np");
    const std::string key = context.prefix + "/mpi/";
    context.store.set(key + std::to_string(rank_), std::to_string(world_rank));
    std::vector<int> world_ranks;
    for (int r = 0; r < size_; ++r)
      world_ranks.push_back(std::stoi(context.store.get(key + std::to_string(r), timeout_)));
    // Which call of MPI_Comm_create_group belongs to which: the ranks of different ones may
    // overlap.
    if (rank_ == 0)
      context.store.set(key + "tag", std::to_string(context.store.add("mpi/tag", 1) % 32768));
    const int tag = std::stoi(context.store.get(key + "tag", timeout_));
    const std::lock_guard lock(mpi_mutex);
    MPI_Group world, group;
    check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
    check(MPI_Group_incl(world, size_, world_ranks.data(), &group), "MPI_Group_incl");
    check(MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &wire_->comm), "MPI_Comm_create_group");
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    check(MPI_Comm_set_errhandler(wire_->comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }

  // Begins one nonblocking call and waits for its end.
  template <typename Begin>
  void finish(const char* call, const Begin& begin) {
    MPI_Request request = MPI_REQUEST_NULL;
    const auto deadline = clock_.deadline_in(timeout_);
    int done = 0;
    try {
      for (int spin = 0; !done; ++spin) {
        {
          const std::lock_guard lock(mpi_mutex);
          if (spin == 0) check(begin(&request), call);
          check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), call);
        }
        if (done) break;
        if (aborted_ && Clock::now() >= aborted_at_.load() + kGrace) throw PeerError("aborted");
        if (spin < kSpins) {
          sched_yield();
        } else {
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
        if (clock_.has_passed(deadline))
          throw PeerError("timeout after " + std::to_string(timeout_.count()) + " ms in " + call +
                          ", waiting for " + others());
      }
    } catch (const PeerError&) {
      failed_ = anything_failed = true;
      throw;
    }
  }

  std::string others() const {  // MPI does not tell who is missing
    std::string text = "one of the ranks";
    for (const int r : members_) {
      if (r != members_[static_cast<std::size_t>(rank_)]) text += " " + std::to_string(r);
    }
    return text;
  }

  void meet(const ControlWord& word) {
    const auto own = static_cast<std::size_t>(rank_);
    wire_->words.back() = word;
    finish("MPI_Iallgather", [&](MPI_Request* request) {
      return MPI_Iallgather(&wire_->words.back(), sizeof word, MPI_BYTE, wire_->words.data(),
                            sizeof word, MPI_BYTE, wire_->comm, request);
    });
    try {
      for (std::size_t r = 0; r < parts_.size(); ++r)
        expect_equal(word, members_[own], wire_->words[r], members_[r]);
    } catch (const MismatchError&) {
      keep_moving();
      throw;
    }
  }

  void keep_moving() const {
    for (const auto end = Clock::now() + kGrace; Clock::now() < end; sched_yield()) {
      const std::lock_guard lock(mpi_mutex);
      int any = 0;
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, wire_->comm, &any, MPI_STATUS_IGNORE);
    }
  }

  void broadcast_from(int root, char* data, std::size_t bytes) {
    char *at = data, *end = data + bytes, *block = wire_->outgoing.data();
    for (std::size_t n = 0; at < end; at += n) {
      n = std::min(static_cast<std::size_t>(end - at), wire_->outgoing.size());
      if (rank_ == root) std::memcpy(block, at, n);
      finish("MPI_Ibcast", [&](MPI_Request* request) {
        return MPI_Ibcast(block, static_cast<int>(n), MPI_BYTE, root, wire_->comm, request);
      });
      if (rank_ != root) std::memcpy(at, block, n);
    }
  }

  void gather_all(const char* input, std::size_t bytes, char* output) {
    for (std::size_t at = 0, n = 0; at < bytes; at += n) {
      n = std::min(bytes - at, kPieceBytes);
      gather(input + at, n);
      for (std::size_t r = 0; r < parts_.size(); ++r)
        std::memcpy(output + r * bytes + at, wire_->incoming.data() + r * n, n);
    }
  }

  void exchange_all(const char* input, std::size_t bytes, char* output) {
    for (std::size_t at = 0, n = 0; at < bytes; at += n) {
      n = std::min(bytes - at, kPieceBytes);
      for (std::size_t r = 0; r < parts_.size(); ++r)
        std::memcpy(wire_->outgoing.data() + r * n, input + r * bytes + at, n);
      finish("MPI_Ialltoall", [&](MPI_Request* request) {
        return MPI_Ialltoall(wire_->outgoing.data(), static_cast<int>(n), MPI_BYTE,
                             wire_->incoming.data(), static_cast<int>(n), MPI_BYTE, wire_->comm,
                             request);
      });
      for (std::size_t r = 0; r < parts_.size(); ++r)
        std::memcpy(output + r * bytes + at, wire_->incoming.data() + r * n, n);
    }
  }

  // `bytes` of every rank, one after the other, into `incoming`.
  void gather(const char* own, std::size_t bytes) {
    std::memcpy(wire_->outgoing.data(), own, bytes);
    finish("MPI_Iallgather", [&](MPI_Request* request) {
      return MPI_Iallgather(wire_->outgoing.data(), static_cast<int>(bytes), MPI_BYTE,
                            wire_->incoming.data(), static_cast<int>(bytes), MPI_BYTE, wire_->comm,
                            request);
    });
  }

  // Block by block: slice r of all ranks goes to rank r, which folds them; the results go to all.
  void reduce(char* data, std::size_t count, DType type, ReduceOp op) {
    const std::size_t width = size_of(type), most = kPieceBytes / width * parts_.size();
    for (std::size_t at = 0, n = 0; at < count; at += n) {
      n = std::min(count - at, most);
      reduce_block(data + at * width, n, type, op);
    }
  }

  void reduce_block(char* block, std::size_t count, DType type, ReduceOp op) {
    const std::size_t width = size_of(type);
    char *outgoing = wire_->outgoing.data(), *incoming = wire_->incoming.data();
    const ElementRange own = slice_of(count, rank_, size_);
    const int own_bytes = static_cast<int>(own.count() * width);
    for (int r = 0; r < size_; ++r) {
      const auto at = static_cast<std::size_t>(r);
      const ElementRange theirs = slice_of(count, r, size_);
      counts_[at] = static_cast<int>(theirs.count() * width);
      offsets_[at] = static_cast<int>(theirs.begin * width);
      own_counts_[at] = own_bytes;
      own_offsets_[at] = r * own_bytes;
      parts_[at] = incoming + r * own_bytes;
    }
    std::memcpy(outgoing, block, count * width);
    finish("MPI_Ialltoallv", [&](MPI_Request* request) {
      return MPI_Ialltoallv(outgoing, counts_.data(), offsets_.data(), MPI_BYTE, incoming,
                            own_counts_.data(), own_offsets_.data(), MPI_BYTE, wire_->comm,
                            request);
    });
    reduce_parts(outgoing, parts_.data(), size_, own.count(), type, op);
    finish("MPI_Iallgatherv", [&](MPI_Request* request) {
      return MPI_Iallgatherv(outgoing, own_bytes, MPI_BYTE, incoming, counts_.data(),
                             offsets_.data(), MPI_BYTE, wire_->comm, request);
    });
    std::memcpy(block, incoming, count * width);
  }

  const int rank_, size_;
  const std::vector<int> members_;
  const std::chrono::milliseconds timeout_;
  const base::Clock& clock_;
  std::unique_ptr<Wire> wire_;
  std::vector<const void*> parts_;
  std::vector<int> counts_, offsets_, own_counts_, own_offsets_;  // of a block, in bytes
  bool failed_ = false;
  std::atomic<Clock::time_point> aborted_at_{};
  std::atomic<bool> aborted_{false};
};

std::unique_ptr<Communicator> make(const BackendContext& context) {
  return std::make_unique<MpiCommunicator>(context);
}

}  // namespace

extern "C" const Backend* engine_backend_plugin(const char* abi) {
  static const Backend backend{"mpi", Reach::kHosts, true, "MPI; start the ranks with mpirun",
                               &make};
  return std::strcmp(abi, kBackendPluginAbi) == 0 ? &backend : nullptr;
}
