// CUDA's runtime interface on the CPU, as unhelpful as the real one may be.
//
// Work on a stream is put off until something waits for it; then it runs in the order of the
// stream, and other streams only as far as events ask for. Device memory is unreadable outside
// device work, freshly allocated memory is all ones (NaN), and pages around each allocation are
// never mapped. A captured graph knows which of its nodes wait for which, and a replay runs them in
// the order in which they were issued, or in any other that these edges allow (graph_order.h).
// What the devices are and which calls fail is set by variables: fake_settings.h.
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/gpu/stand_in/fake_settings.h"
#include "io/gpu/stand_in/graph_order.h"
#include "io/gpu/stand_in/simt.h"

// A piece of device work; false: not yet, ask again. So a query never waits for work that itself
// waits for another process.
using Work = std::function<bool()>;

struct EmulatedGraph {
  std::vector<Work> work;                // of each node
  fake::GraphEdges after;                // the nodes that come before each
  std::vector<EmulatedStream*> streams;  // that take part in the capture
  bool valid = true;                     // until a call in the capture fails
  bool ended = false;                    // the capture
  std::uint64_t replays = 0;
};

struct EmulatedStream {
  int device = 0;
  std::recursive_mutex mutex;  // held while its work runs
  std::mutex queue_mutex;
  std::deque<Work> queue;
  std::atomic<std::uint64_t> issued{0}, done{0};
  std::shared_ptr<EmulatedGraph> capture;
  std::vector<std::size_t> ends;  // nodes of the capture that the next one on this stream is after
  bool captures_itself = false;   // EndCapture is called on this one
};

struct EmulatedEvent {
  EmulatedStream* stream = nullptr;  // null: never recorded
  std::uint64_t position = 0;
  std::shared_ptr<EmulatedGraph> capture;  // recorded within this capture
  std::vector<std::size_t> ends;           // EmulatedStream::ends at the record
  std::shared_ptr<double> seconds = std::make_shared<double>(0);
};

using namespace fake;

namespace {

constexpr auto kPause = std::chrono::microseconds(20);

struct Block {
  std::byte* mapping;
  std::size_t mapping_bytes, bytes;
  int device;
};

struct Machine {
  std::mutex mutex;
  std::map<std::uintptr_t, Block> device_blocks, host_blocks;  // by start
  std::map<int, std::size_t> used;
  int open = 0;  // how many threads run device work just now
  std::mutex streams_mutex;
  std::vector<EmulatedStream*> streams;
  std::vector<EmulatedStream*>
      ended;  // kept: another thread's synchronisation may still look at them
  std::atomic<cudaError_t> lost{cudaSuccess};  // what every call says from now on
};

Machine& machine() {
  static Machine* m = new Machine;  // outlives static destructors
  return *m;
}

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local int captures = 0;

cudaError_t fail(cudaError_t code) {
  if (code != cudaSuccess && code != cudaErrorNotReady) last_error = code;
  return code;
}

// What a call of the function says instead of doing anything; success: it does what it is for.
// `code`: how such a call fails.
cudaError_t failing(const char* function, cudaError_t code) {
  Machine& m = machine();
  if (m.lost != cudaSuccess) return fail(m.lost);
  if (!is_chosen(function)) return cudaSuccess;
  if (fails_for_good()) m.lost = code;
  return fail(code);
}

void set_access(int protection) {
  for (auto& [start, block] : machine().device_blocks)
    mprotect(block.mapping + getpagesize(),
             block.mapping_bytes - 2 * static_cast<std::size_t>(getpagesize()), protection);
}

// While it lives, device memory can be read and written.
struct DeviceAccess {
  DeviceAccess() {
    const std::lock_guard lock(machine().mutex);
    if (machine().open++ == 0) set_access(PROT_READ | PROT_WRITE);
  }
  ~DeviceAccess() {
    const std::lock_guard lock(machine().mutex);
    if (--machine().open == 0) set_access(PROT_NONE);
  }
};

[[noreturn]] void device_failure(const char* what) {
  std::fprintf(stderr, "emulated device: %s\n", what);
  std::fflush(stderr);
  std::abort();
}

// Whether the stream's next piece of work came to its end.
bool run_one(EmulatedStream& stream) {
  Work* work =
      nullptr;  // stays where it is: a deque's elements do not move when others are added behind
  {
    const std::lock_guard lock(stream.queue_mutex);
    if (stream.queue.empty()) return false;  // another thread has done it meanwhile
    work = &stream.queue.front();
  }
  try {
    if (!(*work)()) return false;
  } catch (const std::exception& failed) {
    device_failure(failed.what());
  }
  const std::lock_guard lock(stream.queue_mutex);
  stream.queue.pop_front();
  ++stream.done;
  return true;
}

// As far as it goes without waiting; true: there.
bool try_until(EmulatedStream& stream, std::uint64_t position) {
  // Where another thread drives the stream, that one gets it further: waiting for it here, while a
  // stream of ours is held, could be waiting in a ring.
  const std::unique_lock lock(stream.mutex, std::try_to_lock);
  while (lock && stream.done < position)
    if (!run_one(stream)) return false;
  return stream.done >= position;
}

void run_until(EmulatedStream& stream, std::uint64_t position) {
  while (!try_until(stream, position)) std::this_thread::sleep_for(kPause);
}

void drain(EmulatedStream& stream, std::uint64_t position) {
  const DeviceAccess access;
  run_until(stream, position);
}

// One piece further, where that needs no waiting.
void advance(EmulatedStream& stream) {
  bool moved = false;
  {
    const DeviceAccess access;
    moved = try_until(stream, stream.done + 1);
  }
  if (!moved) std::this_thread::sleep_for(kPause);  // others need the core for what is waited for
}

EmulatedStream& default_stream() {
  static thread_local std::map<int, EmulatedStream*> of_device;
  EmulatedStream*& stream = of_device[current_device];
  if (stream == nullptr) {
    stream = new EmulatedStream;
    stream->device = current_device;
    const std::lock_guard lock(machine().streams_mutex);
    machine().streams.push_back(stream);
  }
  return *stream;
}

EmulatedStream& stream_of(cudaStream_t stream) {
  return stream == nullptr ? default_stream() : *stream;
}

void issue_work(EmulatedStream& stream, Work work) {
  if (stream.capture) {
    EmulatedGraph& graph = *stream.capture;
    graph.work.push_back(std::move(work));
    graph.after.push_back(std::move(stream.ends));
    stream.ends = {graph.work.size() - 1};
    return;
  }
  const std::lock_guard lock(stream.queue_mutex);
  stream.queue.push_back(std::move(work));
  ++stream.issued;
}

void issue(EmulatedStream& stream, std::function<void()> work) {
  issue_work(stream, [work = std::move(work)] { return work(), true; });
}

std::map<std::uintptr_t, Block>::const_iterator find_block(
    const std::map<std::uintptr_t, Block>& blocks, const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return blocks.end();
  --after;
  return address < after->first + std::max<std::size_t>(after->second.bytes, 1) ? after
                                                                                : blocks.end();
}

cudaError_t allocate(std::map<std::uintptr_t, Block>& blocks, void** pointer, std::size_t bytes,
                     int device, int protection) {
  const auto page = static_cast<std::size_t>(getpagesize());
  const std::size_t data = (bytes + 255) / 256 * 256, pages = (data + page - 1) / page * page,
                    total = pages + 2 * page;
  void* mapping =
      mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return fail(cudaErrorMemoryAllocation);
  auto* base = static_cast<std::byte*>(mapping);
  std::byte* start = base + page + (pages - data);  // the end touches the page that is never mapped
  mprotect(base + page, pages, PROT_READ | PROT_WRITE);
  if (bytes <= (std::size_t{64} << 20)) std::memset(start, 0xff, bytes);
  mprotect(base + page, pages, protection);
  blocks[reinterpret_cast<std::uintptr_t>(start)] = {base, total, bytes, device};
  *pointer = start;
  return cudaSuccess;
}

cudaError_t release(std::map<std::uintptr_t, Block>& blocks, void* pointer) {
  const auto found = blocks.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == blocks.end()) return fail(cudaErrorInvalidValue);
  munmap(found->second.mapping, found->second.mapping_bytes);
  blocks.erase(found);
  return cudaSuccess;
}

void add_ends(std::vector<std::size_t>& ends, const std::vector<std::size_t>& more) {
  for (const std::size_t node : more)
    if (std::ranges::find(ends, node) == ends.end()) ends.push_back(node);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

cudaPointerAttributes attributes_of(const void* pointer) {
  const std::lock_guard lock(machine().mutex);
  cudaPointerAttributes attributes{};
  const auto device = find_block(machine().device_blocks, pointer);
  if (device != machine().device_blocks.end()) {
    attributes.type = cudaMemoryTypeDevice;
    attributes.device = device->second.device;
    attributes.devicePointer = const_cast<void*>(pointer);
  } else if (find_block(machine().host_blocks, pointer) != machine().host_blocks.end()) {
    attributes.type = cudaMemoryTypeHost;
    attributes.hostPointer = const_cast<void*>(pointer);
  }
  return attributes;
}

void synchronize_current_device() {
  std::vector<EmulatedStream*> streams;
  {
    const std::lock_guard lock(machine().streams_mutex);
    for (EmulatedStream* stream : machine().streams)
      if (stream->device == current_device) streams.push_back(stream);
  }
  for (EmulatedStream* stream : streams) drain(*stream, stream->issued);
}

void copy_on(EmulatedStream& stream, void* to, const void* from, std::size_t bytes) {
  // From memory that is not pinned the real copy takes its bytes before it returns; here, too.
  const cudaPointerAttributes source = attributes_of(from), target = attributes_of(to);
  if (bytes == 0) return;
  if (source.type == cudaMemoryTypeUnregistered) {
    auto kept = std::make_shared<std::vector<std::byte>>(
        static_cast<const std::byte*>(from), static_cast<const std::byte*>(from) + bytes);
    issue(stream, [=] { std::memcpy(to, kept->data(), bytes); });
  } else {
    issue(stream, [=] { std::memcpy(to, from, bytes); });
    if (target.type == cudaMemoryTypeUnregistered && !stream.capture) drain(stream, stream.issued);
  }
}

}  // namespace

// The first line of each call below that may fail.
#define ENGINE_MAY_FAIL(how) \
  if (const cudaError_t failed = failing(__func__, how); failed != cudaSuccess) return failed

namespace simt {
void enqueue(void* stream, std::function<void()> work) {
  if (is_chosen("launch")) machine().lost = cudaErrorLaunchFailure;
  if (machine().lost != cudaSuccess) return;
  issue(stream_of(static_cast<cudaStream_t>(stream)), std::move(work));
}
DeviceRange device_range(std::uintptr_t address) {
  const std::lock_guard lock(machine().mutex);
  const auto& blocks = machine().device_blocks;
  const auto found = find_block(blocks, reinterpret_cast<const void*>(address));
  return found == blocks.end() ? DeviceRange{} : DeviceRange{found->first, found->second.bytes};
}
void enqueue_until_done(void* stream, std::function<bool()> work) {
  issue_work(stream_of(static_cast<cudaStream_t>(stream)), std::move(work));
}
}  // namespace simt

extern "C" {

const char* cudaGetErrorName(cudaError_t code) {
  switch (code) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureUnjoined:
      return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorCapturedEvent:
      return "cudaErrorCapturedEvent";
    default:
      return "another CUDA error";
  }
}
const char* cudaGetErrorString(cudaError_t code) {
  switch (code) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorStreamCaptureUnjoined:
      return "capturing stream has unjoined work";
    case cudaErrorCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
    default:
      return cudaGetErrorName(code);
  }
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) {
  ENGINE_MAY_FAIL(cudaErrorNoDevice);
  *count = device_count();
  return *count > 0 ? cudaSuccess : fail(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  if (device < 0 || device >= device_count()) return fail(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  return *device = current_device, cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  if (device < 0 || device >= device_count()) return fail(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated GPU");
  properties->uuid.bytes[15] = static_cast<char>(device);
  properties->totalGlobalMem = device_bytes();
  properties->multiProcessorCount = 4;
  properties->major = capability_of(device) / 10;
  properties->minor = capability_of(device) % 10;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  if (device < 0 || device >= device_count()) return fail(cudaErrorInvalidDevice);
  *value = attribute == cudaDevAttrMultiProcessorCount      ? 4
           : attribute == cudaDevAttrComputeCapabilityMajor ? capability_of(device) / 10
           : attribute == cudaDevAttrComputeCapabilityMinor ? capability_of(device) % 10
                                                            : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  if (captures > 0) return fail(cudaErrorStreamCaptureUnsupported);
  synchronize_current_device();
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  const std::lock_guard lock(machine().mutex);
  *total_bytes = device_bytes();
  *free_bytes = *total_bytes - std::min(*total_bytes, machine().used[current_device]);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  ENGINE_MAY_FAIL(cudaErrorMemoryAllocation);
  if (captures > 0) return fail(cudaErrorStreamCaptureUnsupported);
  if (current_device >= device_count()) return fail(cudaErrorNoDevice);
  if (bytes == 0) return *pointer = nullptr, cudaSuccess;
  const std::lock_guard lock(machine().mutex);
  if (machine().used[current_device] + bytes > device_bytes())
    return fail(cudaErrorMemoryAllocation);
  machine().used[current_device] += bytes;
  return allocate(machine().device_blocks, pointer, bytes, current_device,
                  machine().open > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
}
cudaError_t cudaFree(void* pointer) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  if (pointer == nullptr) return cudaSuccess;
  synchronize_current_device();
  const std::lock_guard lock(machine().mutex);
  const auto found = machine().device_blocks.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found != machine().device_blocks.end())
    machine().used[found->second.device] -= found->second.bytes;
  return release(machine().device_blocks, pointer);
}
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  ENGINE_MAY_FAIL(cudaErrorMemoryAllocation);
  if (bytes == 0) return *pointer = nullptr, cudaSuccess;
  const std::lock_guard lock(machine().mutex);
  return allocate(machine().host_blocks, pointer, bytes, 0, PROT_READ | PROT_WRITE);
}
cudaError_t cudaFreeHost(void* pointer) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  if (pointer == nullptr) return cudaSuccess;
  synchronize_current_device();
  const std::lock_guard lock(machine().mutex);
  return release(machine().host_blocks, pointer);
}
cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned) {
  ENGINE_MAY_FAIL(cudaErrorMemoryAllocation);
  const std::lock_guard lock(machine().mutex);
  machine().host_blocks[reinterpret_cast<std::uintptr_t>(pointer)] = {nullptr, 0, bytes, 0};
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* pointer) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  synchronize_current_device();
  const std::lock_guard lock(machine().mutex);
  const auto found = machine().host_blocks.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == machine().host_blocks.end()) return fail(cudaErrorInvalidValue);
  machine().host_blocks.erase(found);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  *attributes = attributes_of(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  copy_on(stream_of(stream), to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  if (captures > 0) return fail(cudaErrorStreamCaptureUnsupported);
  copy_on(default_stream(), to, from, bytes);
  drain(default_stream(), default_stream().issued);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  if (stream_of(stream).capture && capture_mode() == "no-fills") {
    stream_of(stream).capture->valid = false;
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  issue(stream_of(stream), [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  issue(default_stream(), [=] { std::memset(to, value, bytes); });
  drain(default_stream(), default_stream().issued);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  *stream = new EmulatedStream;
  (*stream)->device = current_device;
  const std::lock_guard lock(machine().streams_mutex);
  machine().streams.push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  drain(*stream, stream->issued);
  const std::lock_guard lock(machine().streams_mutex);
  std::erase(machine().streams, stream);
  machine().ended.push_back(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  EmulatedStream& s = stream_of(stream);
  if (s.capture) return fail(cudaErrorStreamCaptureUnsupported);
  drain(s, s.issued);
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  EmulatedStream& s = stream_of(stream);
  if (s.capture) return fail(cudaErrorStreamCaptureUnsupported);
  if (s.done == s.issued) return cudaSuccess;
  advance(s);
  return s.done == s.issued ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  EmulatedStream& s = stream_of(stream);
  if (event->stream == nullptr) return cudaSuccess;
  if (event->capture) {  // the waiting stream joins the capture
    if (event->capture->ended) return fail(cudaErrorCapturedEvent);
    if (s.capture && s.capture != event->capture) return fail(cudaErrorStreamCaptureInvalidated);
    if (!s.capture) {
      s.capture = event->capture;
      s.capture->streams.push_back(&s);
      s.ends.clear();
    }
    add_ends(s.ends, event->ends);
    return cudaSuccess;
  }
  if (s.capture) return fail(cudaErrorStreamCaptureUnsupported);
  issue_work(s,
             [on = event->stream, position = event->position] { return try_until(*on, position); });
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  issue(stream_of(stream), [=] { function(data); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  return *event = new EmulatedEvent, cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  return delete event, cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  EmulatedStream& s = stream_of(stream);
  event->capture = s.capture;
  event->ends = s.ends;
  event->stream = &s;
  if (!s.capture) {
    issue(s, [seconds = event->seconds] { *seconds = now(); });
    event->position = s.issued;
  }
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  if (event->stream == nullptr) return cudaSuccess;
  if (event->capture) return fail(cudaErrorStreamCaptureUnsupported);
  if (event->stream->done >= event->position) return cudaSuccess;
  advance(*event->stream);
  return event->stream->done >= event->position ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  if (event->stream == nullptr) return cudaSuccess;
  if (event->capture) return fail(cudaErrorStreamCaptureUnsupported);
  drain(*event->stream, event->position);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  *milliseconds = static_cast<float>((*end->seconds - *start->seconds) * 1e3);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  EmulatedStream& s = stream_of(stream);
  if (stream == nullptr || s.capture) return fail(cudaErrorStreamCaptureUnsupported);
  s.capture = std::make_shared<EmulatedGraph>();
  s.capture->streams.push_back(&s);
  s.ends.clear();
  s.captures_itself = true;
  ++captures;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  EmulatedStream& s = stream_of(stream);
  if (!s.capture || !s.captures_itself) return fail(cudaErrorInvalidValue);
  const std::shared_ptr<EmulatedGraph> made = s.capture;
  for (EmulatedStream* each : made->streams) each->capture = nullptr;
  s.captures_itself = false;
  made->ended = true;
  --captures;
  if (!made->valid) return fail(cudaErrorStreamCaptureInvalidated);
  if (capture_mode() == "off") return fail(cudaErrorStreamCaptureUnsupported);
  if (!is_joined(made->after, s.ends)) return fail(cudaErrorStreamCaptureUnjoined);
  *graph = new EmulatedGraph;
  (*graph)->work = made->work;
  (*graph)->after = made->after;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  *status = stream_of(stream).capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  ENGINE_MAY_FAIL(cudaErrorMemoryAllocation);
  return *executable = new EmulatedGraph(*graph), cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, void*, std::size_t* count) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  return *count = graph->work.size(), cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  for (const std::size_t node : replay_order(executable->after, executable->replays++))
    issue_work(stream_of(stream), executable->work[node]);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  return delete graph, cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  return delete executable, cudaSuccess;
}

}  // extern "C"
