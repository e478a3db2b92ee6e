// The part of the CUDA runtime that engine and backends use: memory, streams, events, captured
// graphs, and errors that name the call. Without CUDA (ENGINE_WITH_CUDA=OFF) everything here throws
// CudaError; kBuilt tells this in advance.
//
// A thread works on the device that it has selected by use_device(); streams, events and memory
// belong to the device that was selected when they were created. Handles are the runtime's own,
// passed as void*.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace base::cuda {

#if defined(ENGINE_HAS_CUDA)
inline constexpr bool kBuilt = true;
#else
inline constexpr bool kBuilt = false;
#endif

// A call failed, or a device is needed and there is none (exit code 69).
class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws CudaError "CALL (what): TEXT (NAME)" unless `code`, a cudaError_t, is success. `what` may
// be null.
void check(int code, const char* call, const char* what = nullptr);

// Called after the launch of a kernel. With ENGINE_CUDA_SYNC=1 it waits for the kernel, except
// during a capture: otherwise an error in a kernel is reported by any later call.
void check_launch(int code, const char* kernel, void* stream);
// Returns true if ENGINE_CUDA_SYNC=1 is set: then steps are not captured, so that their kernels are
// waited for as well.
bool waits_for_kernels();

// Loads all kernels together with a device's context, instead of each at its first launch, during
// which a driver may wait for every device of the process: forever, if one waits for another rank.
// REQUIRES: called before the first CUDA call in this process, while it has a single thread. An
// existing value of CUDA_MODULE_LOADING is kept.
void load_kernels_at_start();

// Sets for the whole process if waits yield the core instead of polling: if its ranks have less
// than one core each, polling takes time from those that have work.
void block_in_waits(bool block);
bool blocks_in_waits();

struct DeviceInfo {
  std::string name;  // "NVIDIA H200"
  std::size_t memory_bytes = 0;
  int processors = 0;        // streaming multiprocessors
  int major = 0, minor = 0;  // compute capability
  std::string uuid;          // "GPU-...", in hexadecimal: the same for every process on a host
};

// Returns why no device can be used: "this build has no CUDA", "no CUDA device (...)"; "" if one
// can. Does not throw or create a context on any device.
std::string missing();
int device_count();  // 0 if missing() is not ""
DeviceInfo device_info(int index);
std::string versions();  // "runtime 13.0, driver 13.0"

// Selects the device of the calling thread.
void use_device(int index);
int current_device();
// Numbers of streaming multiprocessors: of the calling thread's device, queried once; the maximum
// over all devices of this process, 0 if there is none.
int processor_count();
int max_processors();
std::string bus_address(int index);  // "0000:3b:00.0"
// Returns true for memory of a device (its own, or managed), not the host's.
bool is_device_memory(const void* data);
std::pair<std::size_t, std::size_t>
free_and_total_memory();  // bytes, of the calling thread's device
void synchronize_device();
void synchronize_stream(void* stream);  // waits until all its work has ended
bool is_idle(void* stream);             // returns true if all its work has ended
bool is_capturing(void* stream);

// Device memory, and pinned host memory, which copies can access asynchronously. Not to be called
// within a step.
void* allocate(std::size_t bytes);  // uninitialized; throws with the requested and the free size
void release(void* memory) noexcept;
void* allocate_pinned(std::size_t bytes);  // zero-filled
void release_pinned(void* memory) noexcept;
void pin(void* memory, std::size_t bytes);  // pins existing memory; slow
void unpin(void* memory) noexcept;

class PinnedMemory {
 public:
  explicit PinnedMemory(std::size_t bytes) : data_(allocate_pinned(bytes)) {}
  ~PinnedMemory() { release_pinned(data_); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_;
};

enum class Priority {
  kUsual,
  kHighest
};  // priority of work that waits for resources of the device

class Stream {
 public:
  explicit Stream(Priority priority = Priority::kUsual);  // does not synchronize with the default
                                                          // stream
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void* handle() const { return handle_; }
  void synchronize() const;
  bool idle() const { return is_idle(handle_); }

 private:
  void* handle_ = nullptr;
};

class Event {
 public:
  explicit Event(bool timing = false);
  ~Event();
  Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  void record(void* stream);
  void make_wait(
      void* stream) const;  // later work on `stream` waits for the work before the record
  void synchronize() const;
  bool done() const;
  double seconds_since(const Event& start) const;  // REQUIRES: both have timing and are complete
  void* handle() const { return handle_; }

 private:
  void* handle_ = nullptr;
};

// Copies between device and host memory; the addresses determine the direction. Host memory must be
// pinned for copies that should not block the caller.
void copy_async(void* to, const void* from, std::size_t bytes, void* stream);
void set_bytes_async(void* to, int value, std::size_t bytes, void* stream);

// A launchable graph of all work that is issued between begin and end on the stream (and on streams
// that wait for its events).
class StepGraph {
 public:
  StepGraph() = default;
  ~StepGraph();
  StepGraph(StepGraph&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), nodes_(std::exchange(other.nodes_, 0)) {}
  StepGraph& operator=(StepGraph&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(nodes_, other.nodes_);
    return *this;
  }
  static void begin_capture(void* stream);
  // Ends the capture. Throws CudaError if part of the work cannot be captured.
  static StepGraph end_capture(void* stream);
  // Ends a capture that failed midway.
  static void drop_capture(void* stream) noexcept;

  explicit operator bool() const { return handle_ != nullptr; }
  void launch(void* stream) const;
  std::size_t nodes() const { return nodes_; }

 private:
  void* handle_ = nullptr;
  std::size_t nodes_ = 0;
};

}  // namespace base::cuda
