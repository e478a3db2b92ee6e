// NCCL's interface for the GPU that the CPU plays: ranks are threads or processes of one host, data
// goes through shared memory.
//
// A communicator that does not block makes a thread for each call, which launches it, also into a
// stream that the caller captures; until it has, the communicator is in progress and takes no other
// call. One that blocks launches in the caller's thread.
//
// As unhelpful as the real one may be: a call that no peer answers never ends, and neither does one
// that the ranks disagree on; a peer's death is not noticed; two ranks on one GPU are refused
// unless their NCCL_HOSTID differs; host memory is refused; a call that is captured on some ranks
// only never ends; abort waits until no graph has a call of the communicator. Sums are folded in
// the order of ranks, rounded at each step; NaN loses in max and min; u8 sums wrap.
//
// NCCL_ON_CPU_FAULT=KIND[:N][@RANK] brings about, on one rank or on all:
//   refuse_init      the communicator is not made (ncclSystemError)
//   refuse_register  memory is not registered (ncclInvalidUsage)
//   refuse_others    memory that is not of ncclMemAlloc is not registered
//   refuse_memory    ncclMemAlloc fails
//   keep_call:N      the N-th call (from 0) is never launched: it does not return, or stays in
//                    progress, until the communicator is aborted
//   async_error:N    the N-th collective to run (from 0) ends in ncclRemoteError, seen by
//   ncclCommGetAsyncError only never:N          it never comes to its end
// NCCL_ON_CPU_VERSION=N is what ncclGetVersion says. A communicator takes NCCL_ON_CPU_MEMORY=BYTES
// of device memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "tests/emulator/libraries/nccl_on_cpu.h"
#include "tests/emulator/simt/simt.h"

using namespace nccl_on_cpu;

namespace {

Fault fault_of(int rank) {
  const char* text = std::getenv("NCCL_ON_CPU_FAULT");
  if (text == nullptr) return {};
  std::string spec = text;
  if (const std::size_t at = spec.find('@'); at != std::string::npos) {
    if (std::atoi(spec.c_str() + at + 1) != rank) return {};
    spec.resize(at);
  }
  const std::size_t colon = spec.find(':');
  return {spec.substr(0, colon),
          colon == std::string::npos ? 0 : std::atol(spec.c_str() + colon + 1)};
}

thread_local std::string last_error;
thread_local int launches = 0;

ncclResult_t fail(ncclResult_t result, const std::string& text) {
  last_error = text;
  return result;
}

bool on_device(const void* memory, int device) {
  cudaPointerAttributes attributes{};
  cudaPointerGetAttributes(&attributes, memory);
  return attributes.type == cudaMemoryTypeDevice && attributes.device == device;
}

// The state machine of a communicator, driven by whoever asks for its state.
void advance(State& s) {
  if (s.stage == State::kJoining && s.state == ncclInProgress) {
    if (!s.all([](const Slot& other) { return other.joined != 0; })) return;
    s.state = ncclSuccess;
    if (!s.all([&](const Slot& other) { return other.ranks == s.ranks; }))
      s.state = fail(ncclInvalidUsage, "ranks gave different numbers of ranks");
    for (int r = 0; r < s.ranks; ++r) {
      for (int other = 0; other < r; ++other) {
        if (std::strcmp(s.slot(r).host, s.slot(other).host) == 0 &&
            std::strcmp(s.slot(r).bus, s.slot(other).bus) == 0)
          s.state = fail(ncclInvalidUsage,
                         "Duplicate GPU detected : rank " + std::to_string(other) + " and rank " +
                             std::to_string(r) + " both on CUDA device " + s.slot(r).bus);
      }
    }
    if (s.state == ncclSuccess) s.stage = State::kReady;
    if (s.rank == 0) shm_unlink(s.name.c_str());
  }
  if (s.stage == State::kFinalizing &&
      s.all([](const Slot& other) { return other.finalized != 0; })) {
    s.stage = State::kFinalized;
    s.state = ncclSuccess;
  }
}

ncclResult_t join(State& s) {
  const int fd = shm_open(s.name.c_str(), O_RDWR | O_CREAT, 0600);
  if (fd < 0) return fail(ncclSystemError, "no shared memory");
  void* mapped = MAP_FAILED;
  if (ftruncate(fd, sizeof(Segment)) == 0)
    mapped = mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) return fail(ncclSystemError, "no shared memory");
  s.segment = static_cast<Segment*>(mapped);
  Slot& own = s.slot(s.rank);
  const char* host = std::getenv("NCCL_HOSTID");
  std::snprintf(own.host, sizeof own.host, "%s", host == nullptr ? "this host" : host);
  cudaDeviceGetPCIBusId(own.bus, sizeof own.bus, s.device);
  own.ranks = s.ranks;
  own.joined = 1;
  return ncclSuccess;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<State> state;
};

namespace {

// Puts the call on its stream.
ncclResult_t launch(const std::shared_ptr<State>& state, long number, Call call, const void* in,
                    void* out, cudaStream_t stream) {
  while (state->fault.kind == "keep_call" && state->fault.number == number && !state->aborted)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  if (state->aborted) return ncclInternalError;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaSetDevice(state->device) != cudaSuccess ||
      cudaStreamIsCapturing(stream, &status) != cudaSuccess)
    return ncclUnhandledCudaError;
  call.captured = status != cudaStreamCaptureStatusNone;
  ++launches;
  const std::shared_ptr<int> graph = call.captured ? state->graphs : nullptr;
  simt::enqueue_until_done(stream, [running = Running(state, call, in, out), graph]() mutable {
    return running.step();
  });
  return ncclSuccess;
}

ncclResult_t issue(ncclComm_t comm, const Call& call, const void* in, void* out,
                   cudaStream_t stream) {
  const std::shared_ptr<State> state = comm->state;  // an abort deletes the communicator
  State& s = *state;
  if (s.stage != State::kReady) return fail(ncclInvalidUsage, "the communicator is not ready");
  if (s.launching) return fail(ncclInvalidArgument, "the call before is still in progress");
  if (call.op != ncclSum && call.op != ncclMax && call.op != ncclMin)
    return fail(ncclInvalidArgument, "no such reduction here");
  if (!on_device(in, s.device) || !on_device(out, s.device))
    return fail(ncclInvalidArgument, "the memory is not that of the communicator's device");
  const long number = s.issued++;
  if (s.blocking) return launch(state, number, call, in, out, stream);
  s.join_launcher();
  s.launching = true;
  s.launcher = std::thread([&s, number, call, in, out, stream, weak = std::weak_ptr(state)] {
    // The communicator joins this thread before it lets go of its state.
    s.launched = launch(weak.lock(), number, call, in, out, stream);
    s.launching = false;
  });
  return ncclInProgress;
}

// The sends and receives of a group: together they must be one exchange of equal parts, in order.
struct Grouped {
  int depth = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  const void* in = nullptr;
  void* out = nullptr;
  Call call;
  int sends = 0, receives = 0;
  bool wrong = false;
};
thread_local Grouped grouped;

// `done` counts the calls of this kind in the group.
ncclResult_t add_to_group(int& done, const void* memory, const void* first, std::size_t count,
                          ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  if (grouped.depth == 0) return fail(ncclInvalidUsage, "a send or receive without a group");
  const Call call{Kind::kAllToAll, type, ncclSum, 0, count};
  const std::size_t width = type == ncclUint8 ? 1 : 0;
  if (grouped.sends + grouped.receives == 0) {
    grouped.comm = comm;
    grouped.stream = stream;
    grouped.call = call;
  }
  grouped.wrong |= width == 0 || comm != grouped.comm || stream != grouped.stream ||
                   !(call == grouped.call) || peer != done ||
                   memory != static_cast<const std::byte*>(first) +
                                 static_cast<std::size_t>(peer) * count * width;
  ++done;
  return ncclSuccess;
}

struct Registry {
  std::mutex mutex;
  std::set<void*> registered, own;  // own: of ncclMemAlloc
};
Registry& registry() {
  static Registry* r = new Registry;
  return *r;
}
void forget_registered(State& s) {
  const std::lock_guard lock(registry().mutex);
  for (const auto& [memory, bytes] : s.registered) registry().registered.erase(memory);
  s.registered.clear();
}

}  // namespace

extern "C" {

// For tests: the calls that the calling thread itself has put on a stream.
int nccl_on_cpu_launches() { return launches; }

ncclResult_t ncclGetVersion(int* version) {
  const char* text = std::getenv("NCCL_ON_CPU_VERSION");
  *version = text == nullptr ? 22809 : std::atoi(text);
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  static const char* const texts[] = {"no error",
                                      "unhandled cuda error",
                                      "unhandled system error",
                                      "internal error",
                                      "invalid argument",
                                      "invalid usage",
                                      "remote process exited or there was a network error",
                                      "NCCL operation in progress"};
  return result >= 0 && result <= ncclInProgress ? texts[result] : "unknown result code";
}
const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::random_device random;
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "/nccl_on_cpu.%08x%08x", random(), random());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const Fault fault = fault_of(rank);
  if (fault.kind == "refuse_init") return fail(ncclSystemError, "refused on demand");
  if (ranks < 1 || ranks > kMaxRanks || rank < 0 || rank >= ranks)
    return fail(ncclInvalidArgument, "no such rank");
  auto state = std::make_shared<State>();
  state->rank = rank;
  state->ranks = ranks;
  state->name = id.internal;
  state->fault = fault;
  state->blocking = config == nullptr || config->blocking != 0;
  cudaGetDevice(&state->device);
  if (const char* bytes = std::getenv("NCCL_ON_CPU_MEMORY");
      bytes != nullptr &&
      cudaMalloc(&state->buffers, std::strtoull(bytes, nullptr, 10)) != cudaSuccess)
    return fail(ncclUnhandledCudaError, "out of memory");
  if (const ncclResult_t joined = join(*state); joined != ncclSuccess) return joined;
  *comm = new ncclComm{state};
  while (state->blocking && state->state == ncclInProgress) {
    advance(*state);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return state->blocking ? state->state : ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  State& s = *comm->state;
  advance(s);
  if (s.failed) s.state = fail(ncclRemoteError, "failed on demand");
  *result = s.state != ncclSuccess ? s.state : s.launching ? ncclInProgress : s.launched;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  State& s = *comm->state;
  if (s.stage != State::kReady || s.failed)
    return fail(ncclInvalidUsage, "the communicator is not ready");
  if (!s.registered.empty()) return fail(ncclInvalidUsage, "memory is still registered");
  s.slot(s.rank).finalized = 1;
  s.stage = State::kFinalizing;
  s.state = ncclInProgress;
  const std::shared_ptr<State> state = comm->state;  // an abort deletes the communicator
  while (state->blocking && state->state == ncclInProgress && !state->aborted) {
    advance(*state);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return state->aborted ? ncclInternalError : state->state;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm->state->stage != State::kFinalized)
    return fail(ncclInvalidUsage, "destroyed before it was finalized");
  comm->state->join_launcher();
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  State& s = *comm->state;
  s.aborted = true;
  shm_unlink(s.name.c_str());  // in case that not all have come
  s.join_launcher();
  forget_registered(s);
  while (s.graphs.use_count() > 1) std::this_thread::sleep_for(std::chrono::microseconds(100));
  delete comm;
  return ncclSuccess;
}

#if !defined(NCCL_ON_CPU_IS_OLD)
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* memory, std::size_t bytes,
                              void** handle) {
  if (!on_device(memory, comm->state->device))
    return fail(ncclInvalidArgument, "not the device's memory");
  if (fault_of(comm->state->rank).kind == "refuse_register")
    return fail(ncclInvalidUsage, "registration refused");
  const std::lock_guard lock(registry().mutex);
  if (fault_of(comm->state->rank).kind == "refuse_others" && !registry().own.contains(memory))
    return fail(ncclInvalidUsage, "memory of another library");
  comm->state->registered[memory] = bytes;
  registry().registered.insert(memory);
  *handle = memory;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  if (comm->state->registered.erase(handle) == 0)
    return fail(ncclInvalidArgument, "not registered");
  const std::lock_guard lock(registry().mutex);
  registry().registered.erase(handle);
  return ncclSuccess;
}
ncclResult_t ncclMemAlloc(void** memory, std::size_t bytes) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || fault_of(device).kind == "refuse_memory" ||
      cudaMalloc(memory, bytes) != cudaSuccess)
    return fail(ncclUnhandledCudaError, "out of memory");
  const std::lock_guard lock(registry().mutex);
  registry().own.insert(*memory);
  return ncclSuccess;
}
ncclResult_t ncclMemFree(void* memory) {
  {
    const std::lock_guard lock(registry().mutex);
    if (registry().registered.contains(memory)) {
      std::fprintf(stderr, "nccl_on_cpu: freed while registered\n");
      return fail(ncclInvalidUsage, "freed while registered");
    }
    if (registry().own.erase(memory) == 0) return fail(ncclInvalidArgument, "not of ncclMemAlloc");
  }
  return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
#endif

ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return issue(comm, {Kind::kAllReduce, type, op, 0, count}, send, receive, stream);
}
ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return issue(comm, {Kind::kBroadcast, type, ncclSum, root, count}, send, receive, stream);
}
ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t send_count,
                           ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  return issue(comm, {Kind::kAllGather, type, ncclSum, 0, send_count}, send, receive, stream);
}
ncclResult_t ncclGroupStart() {
  if (grouped.depth == 0) grouped = {};
  ++grouped.depth;
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  if (peer == 0) grouped.in = send;
  return add_to_group(grouped.sends, send, grouped.in, count, type, peer, comm, stream);
}
ncclResult_t ncclRecv(void* receive, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  if (peer == 0) grouped.out = receive;
  return add_to_group(grouped.receives, receive, grouped.out, count, type, peer, comm, stream);
}
ncclResult_t ncclGroupEnd() {
  if (grouped.depth == 0) return fail(ncclInvalidUsage, "the end of no group");
  if (--grouped.depth > 0 || grouped.sends + grouped.receives == 0) return ncclSuccess;
  const int ranks = grouped.comm->state->ranks;
  if (grouped.wrong || grouped.sends != ranks || grouped.receives != ranks)
    return fail(ncclInvalidUsage, "the group is no exchange of equal parts between all ranks");
  return issue(grouped.comm, grouped.call, grouped.in, grouped.out, grouped.stream);
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t receive_count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  const std::size_t count = receive_count * static_cast<std::size_t>(comm->state->ranks);
  return issue(comm, {Kind::kReduceScatter, type, op, 0, count}, send, receive, stream);
}

}  // extern "C"
