// The nccl backend: every call first gathers the control words, then moves its payload; all of it is polled.
//
// The communicator is a nonblocking one of NCCL's: no call waits inside the library, where no deadline would reach it.
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

#include "backends/backend_error.h"
#include "backends/control_word.h"
#include "backends/nccl/nccl_backend.h"
#include "backends/nccl/nccl_library.h"

namespace backends {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kGoodbyeTime = std::chrono::seconds(2);
constexpr int kSpins = 10'000;  // polls before the core is left to others for longer

ncclDataType_t type_of(DataType type) {
  switch (type) {
    case DataType::kF32:
      return ncclFloat32;
    case DataType::kF64:
      return ncclFloat64;
    case DataType::kI64:
      return ncclInt64;
    case DataType::kU8:
      return ncclUint8;
    case DataType::kF16:
      return ncclFloat16;
    case DataType::kBF16:
      return ncclBfloat16;
  }
  return ncclUint8;
}

ncclRedOp_t op_of(ReduceOp op) { return op == ReduceOp::kSum ? ncclSum : op == ReduceOp::kMax ? ncclMax : ncclMin; }

class NcclCommunicator final : public Communicator {
 public:
  explicit NcclCommunicator(const BackendContext& context)
      : nccl_(nccl_library()),
        rank_(context.rank),
        size_(context.world_size),
        members_(context.members),
        timeout_(context.timeout),
        words_(static_cast<std::size_t>(size_)) {}

  ~NcclCommunicator() override {
    if (comm_ != nullptr && !end_in_order()) nccl_.ncclCommAbort(comm_);
    if (device_words_ != nullptr) nccl_.cudaFree(device_words_);
    if (stream_ != nullptr) nccl_.cudaStreamDestroy(stream_);
  }

  void connect(const BackendContext& context) {
    check_cuda(nccl_.cudaGetDevice(&device_), "cudaGetDevice");
    check_cuda(nccl_.cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check_cuda(nccl_.cudaMalloc(reinterpret_cast<void**>(&device_words_), sizeof(ControlWord) * (words_.size() + 1)),
               "cudaMalloc");
    ncclUniqueId id;
    const std::string key = context.prefix + "/nccl";
    if (rank_ == 0) {
      check_nccl(nccl_.ncclGetUniqueId(&id), "ncclGetUniqueId");
      context.store.set(key, std::string_view(reinterpret_cast<const char*>(&id), sizeof id));
    } else {
      const std::string bytes = context.store.get(key, timeout_);
      if (bytes.size() != sizeof id)
        throw PeerError("NCCL's id has " + std::to_string(bytes.size()) + " bytes, expected " + std::to_string(sizeof id));
      std::memcpy(&id, bytes.data(), sizeof id);
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    begin("ncclCommInitRankConfig", [&] { return nccl_.ncclCommInitRankConfig(&comm_, size_, id, rank_, &config); });
  }

  std::string_view name() const override { return "nccl"; }
  int rank() const override { return rank_; }
  int world_size() const override { return size_; }

  void all_reduce(void* data, std::size_t count, DataType type, ReduceOp op) override {
    meet(reduction_word(Operation::kAllReduce, ++sequence_, count, type, op));
    reduce_all(data, count, type, op);
  }

  void reduce_scatter(void* data, std::size_t count, DataType type, ReduceOp op) override {
    meet(reduction_word(Operation::kReduceScatter, ++sequence_, count, type, op));
    const auto ranks = static_cast<std::size_t>(size_);
    if (count % ranks != 0) return reduce_all(data, count, type, op);  // NCCL scatters equal shares only
    char* own = static_cast<char*>(data) + static_cast<std::size_t>(rank_) * (count / ranks) * size_of(type);
    finish("ncclReduceScatter", data, count,
           [&] { return nccl_.ncclReduceScatter(data, own, count / ranks, type_of(type), op_of(op), comm_, stream_); });
  }

  void broadcast(void* data, std::size_t bytes, int root) override {
    meet(transfer_word(Operation::kBroadcast, ++sequence_, bytes, root));
    finish("ncclBroadcast", data, bytes, [&] { return nccl_.ncclBroadcast(data, data, bytes, ncclUint8, root, comm_, stream_); });
  }

  void all_gather(const void* input, std::size_t bytes, void* output) override {
    meet(transfer_word(Operation::kAllGather, ++sequence_, bytes));
    if (bytes > 0) require_device_memory(input);
    finish("ncclAllGather", output, bytes, [&] { return nccl_.ncclAllGather(input, output, bytes, ncclUint8, comm_, stream_); });
  }

  void barrier() override { meet(transfer_word(Operation::kBarrier, ++sequence_, 0)); }

  void abort(std::string_view reason) noexcept override {
    try {
      const std::lock_guard lock(mutex_);
      if (reason_.empty()) reason_.assign(reason);
    } catch (const std::exception&) {
      // Out of memory: it ends without saying why.
    }
    aborted_ = true;
  }

 private:
  void reduce_all(void* data, std::size_t count, DataType type, ReduceOp op) {
    finish("ncclAllReduce", data, count,
           [&] { return nccl_.ncclAllReduce(data, data, count, type_of(type), op_of(op), comm_, stream_); });
  }

  // All ranks gather the words first, whatever they were called for: so NCCL itself never sees a mismatch, which hangs it.
  void meet(const ControlWord& word) {
    check_cuda(nccl_.cudaSetDevice(device_), "cudaSetDevice");
    ControlWord* own = device_words_ + words_.size();
    check_cuda(nccl_.cudaMemcpyAsync(own, &word, sizeof word, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
    begin("ncclAllGather of control words",
          [&] { return nccl_.ncclAllGather(own, device_words_, sizeof word, ncclUint8, comm_, stream_); });
    wait("ncclAllGather of control words");
    check_cuda(nccl_.cudaMemcpyAsync(words_.data(), device_words_, sizeof word * words_.size(), cudaMemcpyDeviceToHost, stream_),
               "cudaMemcpyAsync");
    wait("cudaMemcpyAsync");
    const int here = members_[static_cast<std::size_t>(rank_)];
    for (std::size_t r = 0; r < words_.size(); ++r) expect_equal(word, here, words_[r], members_[r]);
  }

  template <typename Call>
  void finish(const char* name, const void* data, std::size_t count, const Call& call) {
    if (count == 0) return;
    require_device_memory(data);
    begin(name, call);
    wait(name);
  }

  void require_device_memory(const void* data) const {
    struct {
      cudaPointerAttributes attributes{};
      char room[128];  // a newer library than the header may write more
    } found;
    check_cuda(nccl_.cudaPointerGetAttributes(&found.attributes, data), "cudaPointerGetAttributes");
    const cudaMemoryType type = found.attributes.type;
    if (type != cudaMemoryTypeDevice && type != cudaMemoryTypeManaged)
      throw ConfigurationError("backend nccl got host memory, expected memory of CUDA device " + std::to_string(device_) +
                               ": choose another backend for training on the CPU");
  }

  // Hands a call to NCCL, which may take its time even for that.
  template <typename Call>
  void begin(const char* name, const Call& call) {
    ncclResult_t state = call();
    poll(name, [&] {
      if (state == ncclInProgress) {
        ncclResult_t now = ncclSuccess;
        check_nccl(nccl_.ncclCommGetAsyncError(comm_, &now), "ncclCommGetAsyncError");
        state = now;
      }
      if (state != ncclInProgress) check_nccl(state, name);
      return state == ncclSuccess;
    });
  }

  // Until the stream is empty.
  void wait(const char* name) {
    poll(name, [&] {
      const cudaError_t code = nccl_.cudaStreamQuery(stream_);
      if (code == cudaSuccess) return true;
      if (code != cudaErrorNotReady) check_cuda(code, name);
      ncclResult_t now = ncclSuccess;
      check_nccl(nccl_.ncclCommGetAsyncError(comm_, &now), "ncclCommGetAsyncError");
      if (now != ncclInProgress) check_nccl(now, name);
      return false;
    });
  }

  // Whatever goes wrong, the kernels that may still wait for a peer are ended before the caller gets its memory back.
  template <typename Done>
  void poll(const char* name, const Done& done) {
    const auto deadline = Clock::now() + timeout_;
    try {
      for (int spin = 0; !done(); ++spin) {
        if (aborted_) throw_aborted();
        if (Clock::now() >= deadline) throw_timeout(name);
        if (spin > kSpins) std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    } catch (const PeerError&) {
      if (comm_ != nullptr) nccl_.ncclCommAbort(comm_);
      comm_ = nullptr;
      throw;
    }
  }

  [[noreturn]] void throw_aborted() const {
    const std::lock_guard lock(mutex_);
    throw PeerError("aborted: " + reason_);
  }
  [[noreturn]] void throw_timeout(const char* name) const {
    std::string others;  // NCCL does not tell who is missing
    for (const int r : members_) {
      if (r != members_[static_cast<std::size_t>(rank_)]) others += " " + std::to_string(r);
    }
    throw PeerError("timeout after " + std::to_string(timeout_.count()) + " ms in " + name + ", waiting for one of the ranks" +
                    others);
  }

  // Collective in NCCL's eyes: with a deadline.
  bool end_in_order() noexcept {
    ncclResult_t state = nccl_.ncclCommFinalize(comm_);
    for (const auto deadline = Clock::now() + kGoodbyeTime; state == ncclInProgress && Clock::now() < deadline;) {
      if (nccl_.ncclCommGetAsyncError(comm_, &state) != ncclSuccess) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return state == ncclSuccess && nccl_.ncclCommDestroy(comm_) == ncclSuccess;
  }

  const NcclLibrary& nccl_;
  const int rank_, size_;
  const std::vector<int> members_;
  const std::chrono::milliseconds timeout_;
  std::vector<ControlWord> words_;       // of all ranks
  ControlWord* device_words_ = nullptr;  // the same on the device; the last place: what this rank sends
  int device_ = 0;
  cudaStream_t stream_ = nullptr;
  ncclComm_t comm_ = nullptr;  // nullptr after a failure
  std::uint32_t sequence_ = 0;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  std::string reason_;
};

}  // namespace

extern const bool kNcclIsBuilt = true;
extern const char* const kNcclNote = "NCCL between GPUs, one a rank";

std::unique_ptr<Communicator> make_nccl_communicator(const BackendContext& context) {
  if (!missing_for_nccl().empty()) throw ConfigurationError("backend nccl cannot be used on this machine: " + missing_for_nccl());
  auto communicator = std::make_unique<NcclCommunicator>(context);
  const Enlistment breakable(context.watch, *communicator);  // a peer that dies now must not be waited for
  communicator->connect(context);
  return communicator;
}

}  // namespace backends
