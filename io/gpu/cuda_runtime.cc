// Wraps the runtime. Each function checks the code of the call and names it in errors.
#include "io/gpu/cuda_runtime.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "io/base/machine/environment.h"
#include "io/base/text/memory_text.h"
#include "io/gpu/device_memory.h"

namespace base::cuda {
namespace {

cudaStream_t stream_of(void* handle) { return static_cast<cudaStream_t>(handle); }
cudaEvent_t event_of(void* handle) { return static_cast<cudaEvent_t>(handle); }

std::atomic<bool> blocking_waits{false};

void expect(cudaError_t code, const char* call) { check(static_cast<int>(code), call); }

int processors_of(int index) {
  int count = 0;
  expect(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, index),
         "cudaDeviceGetAttribute");
  return count;
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Loading kernels and creating a graph allocate device memory as well.
std::string free_memory_text() {
  std::size_t free_bytes = 0, total = 0;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) {
    cudaGetLastError();
    return "";
  }
  return ", " + memory_text(free_bytes) + " of " + memory_text(total) +
         " are free on cuda:" + std::to_string(device);
}

}  // namespace

void check(int code, const char* call, const char* what) {
  const auto error = static_cast<cudaError_t>(code);
  if (error == cudaSuccess) return;
  cudaGetLastError();  // otherwise the next call that checks reports this error again
  throw CudaError(std::string(call) + (what == nullptr ? "" : " of " + std::string(what)) + ": " +
                  cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")" +
                  (error == cudaErrorMemoryAllocation ? free_memory_text() : ""));
}

bool waits_for_kernels() {
  static const bool wanted = base::environment("ENGINE_CUDA_SYNC") == "1";
  return wanted;
}

void check_launch(int code, const char* kernel, void* stream) {
  check(code, "launch", kernel);
  if (waits_for_kernels() && !is_capturing(stream))
    check(static_cast<int>(cudaStreamSynchronize(stream_of(stream))), "execution", kernel);
}

void load_kernels_at_start() { setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0); }

void block_in_waits(bool block) { blocking_waits = block; }
bool blocks_in_waits() { return blocking_waits; }

DeviceInfo device_info(int index) {
  cudaDeviceProp properties;
  expect(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  std::string uuid = "GPU-";
  for (const char byte : properties.uuid.bytes) {
    const auto value = static_cast<unsigned char>(byte);
    uuid += {"0123456789abcdef"[value >> 4], "0123456789abcdef"[value & 15]};
  }
  return {properties.name,  properties.totalGlobalMem, properties.multiProcessorCount,
          properties.major, properties.minor,          uuid};
}

std::string versions() {
  int runtime = 0, driver = 0;
  expect(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  expect(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  return "runtime " + version_text(runtime) + ", driver " + version_text(driver);
}

void use_device(int index) { expect(cudaSetDevice(index), "cudaSetDevice"); }

int current_device() {
  int index = 0;
  expect(cudaGetDevice(&index), "cudaGetDevice");
  return index;
}

int processor_count() {
  thread_local int asked = -1, count = 0;
  if (const int index = current_device(); index != asked) {
    count = processors_of(index);
    asked = index;
  }
  return count;
}

int max_processors() {
  static std::atomic<int> most{0};
  if (most == 0) {
    int found = 0;
    for (int i = 0; i < device_count(); ++i) found = std::max(found, processors_of(i));
    most = found;
  }
  return most;
}

std::string bus_address(int index) {
  char text[64] = {};
  expect(cudaDeviceGetPCIBusId(text, sizeof text, index), "cudaDeviceGetPCIBusId");
  return text;
}

bool is_device_memory(const void* data) {
  cudaPointerAttributes found{};
  expect(cudaPointerGetAttributes(&found, data), "cudaPointerGetAttributes");
  return found.type == cudaMemoryTypeDevice || found.type == cudaMemoryTypeManaged;
}

std::pair<std::size_t, std::size_t> free_and_total_memory() {
  std::size_t free_bytes = 0, total = 0;
  expect(cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo");
  return {free_bytes, total};
}

void synchronize_device() { expect(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t code = cudaMalloc(&memory, bytes);
  const int device = current_device();
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    const auto [left, total] = free_and_total_memory();
    throw DeviceMemoryError({.device = device, .wanted = bytes, .free = left, .total = total});
  }
  expect(code, "cudaMalloc");
  if (memory != nullptr) note_allocated(memory, bytes, device);
  return memory;
}

void release(void* memory) noexcept {
  if (memory == nullptr) return;
  note_released(memory);
  cudaFree(memory);
}

void* allocate_pinned(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t code = cudaHostAlloc(&memory, bytes, cudaHostAllocDefault);
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw CudaError("out of memory: " + memory_text(bytes) +
                    " of pinned memory of the host wanted (cudaHostAlloc)");
  }
  expect(code, "cudaHostAlloc");
  if (bytes > 0) std::memset(memory, 0, bytes);
  return memory;
}

void release_pinned(void* memory) noexcept {
  if (memory != nullptr) cudaFreeHost(memory);
}

void pin(void* memory, std::size_t bytes) {
  expect(cudaHostRegister(memory, bytes, cudaHostRegisterDefault), "cudaHostRegister");
}

void unpin(void* memory) noexcept { cudaHostUnregister(memory); }

Stream::Stream(Priority priority) {
  cudaStream_t made = nullptr;
  if (priority == Priority::kHighest) {
    int lowest = 0, highest = 0;  // the highest priority is the smallest number
    expect(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
    expect(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, highest),
           "cudaStreamCreateWithPriority");
  } else {
    expect(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  handle_ = made;
}
Stream::~Stream() { cudaStreamDestroy(stream_of(handle_)); }
void synchronize_stream(void* stream) {
  if (blocks_in_waits()) {  // only events can wait without polling
    Event end;
    end.record(stream);
    return end.synchronize();
  }
  expect(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize");
}
bool is_idle(void* stream) {
  const cudaError_t code = cudaStreamQuery(stream_of(stream));
  if (code == cudaErrorNotReady) return false;
  expect(code, "cudaStreamQuery");
  return true;
}
bool is_capturing(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  expect(cudaStreamIsCapturing(stream_of(stream), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}
void Stream::synchronize() const { synchronize_stream(handle_); }

Event::Event(bool timing) {
  cudaEvent_t made = nullptr;
  const unsigned flags = (timing ? cudaEventDefault : cudaEventDisableTiming) |
                         (blocks_in_waits() ? cudaEventBlockingSync : cudaEventDefault);
  expect(cudaEventCreateWithFlags(&made, flags), "cudaEventCreateWithFlags");
  handle_ = made;
}
Event::~Event() {
  if (handle_ != nullptr) cudaEventDestroy(event_of(handle_));
}
void Event::record(void* stream) {
  expect(cudaEventRecord(event_of(handle_), stream_of(stream)), "cudaEventRecord");
}
void Event::make_wait(void* stream) const {
  expect(cudaStreamWaitEvent(stream_of(stream), event_of(handle_), 0), "cudaStreamWaitEvent");
}
void Event::synchronize() const {
  expect(cudaEventSynchronize(event_of(handle_)), "cudaEventSynchronize");
}
bool Event::done() const {
  const cudaError_t code = cudaEventQuery(event_of(handle_));
  if (code == cudaErrorNotReady) return false;
  expect(code, "cudaEventQuery");
  return true;
}
double Event::seconds_since(const Event& start) const {
  float milliseconds = 0;
  expect(cudaEventElapsedTime(&milliseconds, event_of(start.handle_), event_of(handle_)),
         "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e-3;
}

void copy_async(void* to, const void* from, std::size_t bytes, void* stream) {
  if (bytes > 0)
    expect(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream)),
           "cudaMemcpyAsync");
}
void set_bytes_async(void* to, int value, std::size_t bytes, void* stream) {
  if (bytes > 0) expect(cudaMemsetAsync(to, value, bytes, stream_of(stream)), "cudaMemsetAsync");
}

StepGraph::~StepGraph() {
  if (handle_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(handle_));
}
void StepGraph::begin_capture(void* stream) {
  expect(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal),
         "cudaStreamBeginCapture");
}
StepGraph StepGraph::end_capture(void* stream) {
  cudaGraph_t graph = nullptr;
  expect(cudaStreamEndCapture(stream_of(stream), &graph), "cudaStreamEndCapture");
  StepGraph made;
  cudaGraphExec_t executable = nullptr;
  const cudaError_t counted = cudaGraphGetNodes(graph, nullptr, &made.nodes_),
                    instantiated = counted == cudaSuccess
                                       ? cudaGraphInstantiate(&executable, graph, 0)
                                       : counted;
  cudaGraphDestroy(graph);
  expect(counted, "cudaGraphGetNodes");
  expect(instantiated, "cudaGraphInstantiate");
  made.handle_ = executable;
  return made;
}
void StepGraph::drop_capture(void* stream) noexcept {
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(stream_of(stream), &graph) == cudaSuccess && graph != nullptr)
    cudaGraphDestroy(graph);
  cudaGetLastError();
}
void StepGraph::launch(void* stream) const {
  expect(cudaGraphLaunch(static_cast<cudaGraphExec_t>(handle_), stream_of(stream)),
         "cudaGraphLaunch");
}

}  // namespace base::cuda
