// Implements the nccl backend: blocking calls first gather the control words, then move their
// payload, and poll for completion.
//
// NCCL's communicator is nonblocking, because a deadline could not end a wait inside the library. A
// thread of NCCL then launches each call, also into a stream that is being captured. With
// ENGINE_NCCL_BLOCKING=1 the caller's thread launches, and a watch ends a call that does not
// return.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "backends/device_calls.h"
#include "backends/interruptible_wait.h"
#include "backends/transport/nccl/nccl_aborter.h"
#include "backends/transport/nccl/nccl_backend.h"
#include "backends/transport/nccl/nccl_bootstrap.h"
#include "backends/transport/nccl/nccl_call_watch.h"
#include "backends/transport/nccl/nccl_library.h"
#include "io/base/time/deadline.h"
#include "io/gpu/device_memory.h"

namespace backends {
namespace {

namespace cuda = base::cuda;

ncclDataType_t type_of(DType type) {
  switch (type) {
    case DType::kF32:
      return ncclFloat32;
    case DType::kF64:
      return ncclFloat64;
    case DType::kI64:
      return ncclInt64;
    case DType::kU8:
      return ncclUint8;
    case DType::kF16:
      return ncclFloat16;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kI32:
      break;
  }
  throw Error("internal: i32 is not reduced");
}

ncclRedOp_t op_of(ReduceOp op) {
  return op == ReduceOp::kSum ? ncclSum : op == ReduceOp::kMax ? ncclMax : ncclMin;
}

cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }

// structure: overrides all of DeviceCommunicator
class NcclCommunicator final : public DeviceCommunicator {
 public:
  explicit NcclCommunicator(const BackendContext& context)
      : nccl_(nccl_library()),
        rank_(context.rank),
        size_(context.world_size),
        members_(context.members),
        timeout_(context.timeout),
        store_(context.store),
        prefix_(context.prefix),
        notice_(context.rank == 0 ? context.notice : nullptr),
        progress_(context.timeout, cuda::blocks_in_waits() ? 0 : InterruptibleWait::kBusyPolls),
        words_{.host = std::vector<ControlWord>(static_cast<std::size_t>(size_))} {
    const cuda::MemoryPurpose purpose("averaging");
    words_.device =
        static_cast<ControlWord*>(cuda::allocate(sizeof(ControlWord) * (words_.host.size() + 1)));
  }

  ~NcclCommunicator() override {
    if (comm_ != nullptr) {
      deregister_all();
      if (finalize()) comm_ = nullptr;
    }
    abort_communicator();
    aborter_.finish();
    while (!allocated_.empty()) release(allocated_.begin()->first);
    cuda::release(words_.device);
  }

  void connect(const ncclUniqueId& id) {
    if (nccl_.blocking) return connect_blocking(id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    begin("ncclCommInitRankConfig",
          [&] { return nccl_.ncclCommInitRankConfig(&comm_, size_, id, rank_, &config); });
  }

  std::string_view name() const override { return "nccl"; }
  int rank() const override { return rank_; }
  int world_size() const override { return size_; }

  void run(const Call& call) override {
    exchange_words(call.word);
    if (call.word.operation == Operation::kBarrier) return;
    run_on(stream_.handle(), call);
    wait(stream_.handle());
  }

  void run_on(void* stream, const Call& call) override {
    void* const data = call.data;
    const std::size_t count = call.word.count;
    cudaStream_t const on = stream_of(stream);
    switch (call.word.operation) {
      case Operation::kAllReduce:
        return all_reduce_by_nccl(on, data, call.word);
      case Operation::kReduceScatter:
        return reduce_scatter_by_nccl(on, data, call.word);
      case Operation::kBroadcast:
        return enqueue("ncclBroadcast", data, count, data, [&] {
          return nccl_.ncclBroadcast(data, data, count, ncclUint8, call.word.root, comm_, on);
        });
      case Operation::kAllGather:
        return enqueue("ncclAllGather", data, count, call.input, [&] {
          return nccl_.ncclAllGather(call.input, data, count, ncclUint8, comm_, on);
        });
      case Operation::kAllToAll:
        return enqueue("ncclSend and ncclRecv", data, count, call.input,
                       [&] { return nccl_all_to_all(call.input, count, data, size_, comm_, on); });
      case Operation::kBarrier:
      case Operation::kRegister:
        break;
    }
  }

  bool capturable() const override { return true; }

  void agree(std::span<const ControlWord> plan) override {
    const auto bytes = std::as_bytes(plan);
    const auto [key, verdict] =
        decide({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
               [&](int rank, const std::string& text) -> std::string {
                 std::vector<ControlWord> theirs(text.size() / sizeof(ControlWord));
                 if (!theirs.empty())
                   std::memcpy(theirs.data(), text.data(), theirs.size() * sizeof(ControlWord));
                 try {
                   expect_equal_plans(plan, group_rank(0), theirs, group_rank(rank));
                 } catch (const MismatchError& error) {
                   return error.what();
                 }
                 return "";
               });
    if (verdict.empty()) return;
    wait_until_all_read(store_, key, rank_, size_);
    throw MismatchError(verdict);
  }

  std::string first_failure(const std::string& own) override {
    return decide(own,
                  [&](int rank, const std::string& text) {
                    return text.empty() ? ""
                                        : "rank " + std::to_string(group_rank(rank)) + ": " + text;
                  })
        .second;
  }

  void check() override {
    try {
      with_peer_errors([&] {
        progress_.throw_if_aborted();
        check_state(last_call_);
      });
    } catch (const PeerError&) {
      give_up();
      throw;
    }
  }

  void wait(void* stream) override {
    abort_on_error(
        [&] {
          progress_.until([&] { return call_waiting_text(last_call_); },
                          [&] {
                            const bool idle = cuda::is_idle(stream);
                            check_state(last_call_);  // a failed call also ends
                            return idle;
                          });
        },
        stream_of(stream));
  }

  void register_memory(void* memory, std::size_t bytes) override {
    const ControlWord word = transfer_word(Operation::kRegister, ++counts_.registrations, bytes);
    agree({&word, 1});
    if (bytes == 0) return;
    require_device_memory(memory, device_, "nccl");
    if (nccl_.ncclCommRegister == nullptr || nccl_.ncclCommDeregister == nullptr) return;
    void* handle = nullptr;
    begin("ncclCommRegister",
          [&] { return nccl_.ncclCommRegister(comm_, memory, bytes, &handle); });
    registered_.emplace_back(memory, handle);
  }

  void deregister_memory(void* memory) noexcept override {
    const auto found = std::ranges::find(registered_, memory, &std::pair<void*, void*>::first);
    if (found == registered_.end()) {
      // ncclCommAbort() deregisters its memory once the caller has destroyed its graphs.
      if (abandons_registered_) aborter_.wait();
      return;
    }
    if (comm_ != nullptr) nccl_.ncclCommDeregister(comm_, found->second);
    registered_.erase(found);
  }

  void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    if (nccl_.registers) memory = allocate_by_nccl(bytes);
    const bool by_nccl = memory != nullptr;
    if (by_nccl)
      cuda::note_allocated(memory, bytes, device_);
    else
      memory = cuda::allocate(bytes);
    allocated_[memory] = by_nccl;
    return memory;
  }

  void release(void* memory) noexcept override {
    deregister_memory(memory);
    const auto made = allocated_.find(memory);
    if (made == allocated_.end()) return;
    if (made->second) {
      cuda::note_released(memory);
      nccl_.ncclMemFree(memory);
    } else {
      cuda::release(memory);
    }
    allocated_.erase(made);
  }

  void abort(std::string_view reason) noexcept override { progress_.abort(reason); }

 private:
  void all_reduce_by_nccl(cudaStream_t stream, void* data, const ControlWord& word) {
    enqueue("ncclAllReduce", data, word.count, data, [&] {
      return nccl_.ncclAllReduce(data, data, word.count, type_of(word.type()), op_of(word.op()),
                                 comm_, stream);
    });
  }
  void reduce_scatter_by_nccl(cudaStream_t stream, void* data, const ControlWord& word) {
    const auto ranks = static_cast<std::size_t>(size_);
    // NCCL scatters only equal shares.
    if (word.count % ranks != 0) return all_reduce_by_nccl(stream, data, word);
    const std::size_t share = word.count / ranks;
    char* own =
        static_cast<char*>(data) + static_cast<std::size_t>(rank_) * share * size_of(word.type());
    enqueue("ncclReduceScatter", data, word.count, data, [&] {
      return nccl_.ncclReduceScatter(data, own, share, type_of(word.type()), op_of(word.op()),
                                     comm_, stream);
    });
  }

  // Rank 0 evaluates the ranks' texts in rank order and publishes the first verdict that is not
  // empty, so that all ranks have the same. Returns the key of the verdict, and the verdict.
  template <typename Check>
  std::pair<std::string, std::string> decide(std::string own, const Check& check) {
    const std::string key = prefix_ + "/plan/" + std::to_string(counts_.plans++);
    if (rank_ != 0) {
      store_.set(key + "/" + std::to_string(rank_), own);
      return {key, store_.get(key, timeout_).substr(1)};
    }
    std::string verdict = check(0, own);
    for (int r = 1; r < size_; ++r) {  // all, since none continues before the last has arrived
      const std::string their_key = key + "/" + std::to_string(r),
                        text = store_.get(their_key, timeout_);
      if (verdict.empty()) verdict = check(r, text);
      store_.remove(their_key);
    }
    store_.set(key, "=" + verdict);
    return {key, verdict};
  }

  int group_rank(int rank_here) const { return members_[static_cast<std::size_t>(rank_here)]; }

  // All ranks gather the words first, for every operation, so that NCCL never gets mismatched
  // calls, which would make it hang. The number in the word also counts calls on streams, and after
  // a capture that failed on one rank it differs: ranks compare the number of blocking calls.
  void exchange_words(ControlWord word) {
    word.sequence = ++counts_.calls;
    cuda::use_device(device_);
    ControlWord* own = words_.device + words_.host.size();
    cuda::copy_async(own, &word, sizeof word, stream_.handle());
    begin("ncclAllGather of control words", [&] {
      return nccl_.ncclAllGather(own, words_.device, sizeof word, ncclUint8, comm_,
                                 stream_of(stream_.handle()));
    });
    wait(stream_.handle());
    cuda::copy_async(words_.host.data(), words_.device, sizeof word * words_.host.size(),
                     stream_.handle());
    wait(stream_.handle());
    for (int r = 0; r < size_; ++r)
      expect_equal(word, group_rank(rank_), words_.host[static_cast<std::size_t>(r)],
                   group_rank(r));
  }

  template <typename Call>
  void enqueue(const char* name, const void* data, std::size_t count, const void* input,
               const Call& call) {
    if (count == 0) return;
    require_device_memory(data, device_, "nccl");
    if (input != data) require_device_memory(input, device_, "nccl");
    begin(name, call);
  }

  // Returns null, and prints a notice, if NCCL has none.
  void* allocate_by_nccl(std::size_t bytes) const {
    void* memory = nullptr;
    std::string why = "it has no ncclMemAlloc, which 2.19 brought";
    if (nccl_.ncclMemAlloc != nullptr && nccl_.ncclMemFree != nullptr) {
      const ncclResult_t result = nccl_.ncclMemAlloc(&memory, bytes);
      if (result == ncclSuccess) return memory;
      why = std::string("ncclMemAlloc: ") + nccl_.ncclGetErrorString(result);
    }
    if (notice_)
      notice_("nccl: gradients are in memory of cudaMalloc, which NCCL " +
              nccl_version_text(nccl_.version) + " may have to copy: " + why);
    return nullptr;
  }

  // The call that connects has no deadline, so it runs in a thread, which is abandoned if the call
  // does not return.
  void connect_blocking(const ncclUniqueId& id) {
    struct Connecting {
      std::atomic<bool> done{false};
      ncclComm_t comm = nullptr;
      ncclResult_t result = ncclSuccess;
    };
    const auto it = std::make_shared<Connecting>();
    std::thread([it, call = nccl_.ncclCommInitRankConfig, size = size_, rank = rank_,
                 device = device_, id] {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 1;
      it->result = cudaSetDevice(device) == cudaSuccess ? call(&it->comm, size, id, rank, &config)
                                                        : ncclUnhandledCudaError;
      it->done = true;
    }).detach();
    const char* const name = last_call_ = "ncclCommInitRankConfig";
    abort_on_error([&] {
      progress_.until([&] { return call_waiting_text(name); }, [&] { return it->done.load(); });
      check_nccl(it->result, name);
    });
    comm_ = it->comm;
    watch_.emplace([this] { return progress_.is_aborted(); }, [this] { abort_communicator(); });
  }

  // Makes a call on this thread without a time limit except the deadline.
  template <typename Call>
  ncclResult_t call_blocking(const char* name, const Call& call) {
    watch_->arm(timeout_);
    const ncclResult_t result = call();
    if (watch_->disarm()) return result;
    progress_.throw_if_aborted();
    progress_.throw_timeout(call_waiting_text(name));
  }

  // Starts a call of NCCL, which may return ncclInProgress.
  template <typename Call>
  void begin(const char* name, const Call& call) {
    if (broken_) throw PeerError("this communicator has failed before");
    last_call_ = name;
    abort_on_error([&] {
      progress_.throw_if_aborted();
      ncclResult_t state = watch_ ? call_blocking(name, call) : call();
      progress_.until([&] { return call_waiting_text(name); },
                      [&] {
                        if (state == ncclInProgress) {
                          ncclResult_t now = ncclSuccess;
                          check_nccl(nccl_.ncclCommGetAsyncError(comm_, &now),
                                     "ncclCommGetAsyncError");
                          state = now;
                        }
                        if (state != ncclInProgress) check_nccl(state, name);
                        return state == ncclSuccess;
                      });
    });
  }

  void check_state(const char* call) {
    if (comm_ == nullptr) throw PeerError("this communicator has failed before");
    ncclResult_t now = ncclSuccess;
    check_nccl(nccl_.ncclCommGetAsyncError(comm_, &now), "ncclCommGetAsyncError");
    if (now != ncclInProgress) check_nccl(now, call);
  }

  // On any error ends the kernels that may still wait for a peer, before the caller can free its
  // memory.
  template <typename Call>
  void abort_on_error(const Call& call, cudaStream_t stream = nullptr) {
    try {
      with_peer_errors(call);
    } catch (const PeerError&) {
      give_up();
      const auto until = base::deadline_in(kNcclLeaveTimeout);
      while (stream != nullptr && cudaStreamQuery(stream) == cudaErrorNotReady &&
             !base::has_passed(until))
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      if (stream == nullptr) aborter_.wait();
      throw;
    }
  }

  void give_up() noexcept {
    broken_ = true;
    abort_communicator();
  }

  // Ends the kernels that wait for a peer. ncclCommAbort() signals them, then waits until every
  // graph with a call of this communicator is destroyed. The caller destroys its graphs after it
  // has caught the error, so a separate thread waits. Memory stays registered until then, because
  // the kernels use it until they end.
  void abort_communicator() noexcept {
    if (comm_ == nullptr) return;
    abandons_registered_ = !registered_.empty();
    registered_.clear();
    aborter_.abort(nccl_, std::exchange(comm_, nullptr), device_);
  }

  // NCCL does not report which rank is missing.
  std::string call_waiting_text(const char* call) const {
    std::string others;
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) others.append(" ").append(std::to_string(group_rank(r)));
    }
    return std::string(call) + ", waiting for one of the ranks" + others;
  }

  void deregister_all() noexcept {
    for (; !registered_.empty(); registered_.pop_back())
      nccl_.ncclCommDeregister(comm_, registered_.back().second);
  }

  // ncclCommFinalize() is collective, so it needs a deadline.
  bool finalize() noexcept {
    if (watch_) watch_->arm(kNcclLeaveTimeout);
    ncclResult_t state = nccl_.ncclCommFinalize(comm_);
    if (watch_ && !watch_->disarm()) return false;
    for (const auto deadline = base::deadline_in(kNcclLeaveTimeout);
         state == ncclInProgress && !base::has_passed(deadline);) {
      if (nccl_.ncclCommGetAsyncError(comm_, &state) != ncclSuccess) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return state == ncclSuccess && nccl_.ncclCommDestroy(comm_) == ncclSuccess;
  }

  const NcclLibrary& nccl_;
  const int rank_, size_;
  const std::vector<int> members_;
  const std::chrono::milliseconds timeout_;
  Store& store_;
  const std::string prefix_;
  const std::function<void(const std::string&)> notice_;  // empty: none
  InterruptibleWait progress_;
  cuda::Stream stream_;  // of the blocking calls
  struct Words {
    std::vector<ControlWord> host;  // of all ranks
    ControlWord* device = nullptr;  // the same, and at the end the word that this rank sends
  };
  Words words_;
  const int device_ = cuda::current_device();
  ncclComm_t comm_ = nullptr;  // nullptr after a failure
  bool broken_ = false;
  const char* last_call_ = "no call yet";
  struct Counts {
    std::uint32_t calls = 0, registrations = 0;
    int plans = 0;
  };
  Counts counts_;
  std::vector<std::pair<void*, void*>> registered_;  // memory and NCCL's handle, in order
  bool abandons_registered_ = false;                 // some was registered when it was aborted
  std::map<void*, bool> allocated_;                  // true: by NCCL
  NcclAborter aborter_;
  std::optional<NcclCallWatch> watch_;  // of calls that block; none: they do not
};

std::unique_ptr<DeviceCommunicator> connect(const BackendContext& context, const ncclUniqueId& id) {
  auto communicator = std::make_unique<NcclCommunicator>(context);
  const AbortOnFailure scope(context.watch, *communicator);  // in case a peer dies while connecting
  communicator->connect(id);
  if (context.rank == 0 && context.notice) context.notice("nccl: " + describe_nccl());
  communicator->barrier();  // connects before any capture
  return communicator;
}

}  // namespace

extern const bool kNcclIsBuilt = true;
extern const char* const kNcclNote = "NCCL between GPUs, one per rank";

std::unique_ptr<DeviceCommunicator> try_nccl_communicator(const BackendContext& context,
                                                          std::string& refusal) {
  return with_peer_errors([&]() -> std::unique_ptr<DeviceCommunicator> {
    const NcclBootstrap bootstrap = bootstrap_nccl(context);
    refusal = bootstrap.refusal;
    return refusal.empty() ? connect(context, bootstrap.id) : nullptr;
  });
}

std::unique_ptr<Communicator> make_nccl_communicator(const BackendContext& context) {
  std::string refusal;
  auto communicator = try_nccl_communicator(context, refusal);
  if (!communicator) throw ConfigurationError("backend nccl cannot be used: " + refusal);
  return communicator;
}

}  // namespace backends
