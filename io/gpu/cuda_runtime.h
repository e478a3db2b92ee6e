// CUDA's runtime as engine and backends use it: memory, streams, events, captured graphs, and
// errors that name the call. Without CUDA (ENGINE_WITH_CUDA=OFF) everything here throws CudaError,
// and kBuilt tells so beforehand.
//
// A thread works on the device that it has chosen by use_device(); streams, events and memory
// belong to the device that was chosen when they were made. Handles are the runtime's own, passed
// on as void*.
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

// A call that failed, or no device where one is needed (exit code 69).
class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws CudaError "CALL (what): TEXT (NAME)" unless `code`, a cudaError_t, is success. `what` may
// be null.
void check(int code, const char* call, const char* what = nullptr);

// After the launch of a kernel. With ENGINE_CUDA_SYNC=1 it waits for the kernel, but within a
// capture: else an error within one kernel is reported by whatever call comes next.
void check_launch(int code, const char* kernel, void* stream);
// Whether ENGINE_CUDA_SYNC=1 is set: a step is not captured then, so that its kernels are waited
// for, too.
bool waits_for_kernels();

// All kernels are loaded together with a device's context, instead of each at its first launch,
// during which a driver may wait for every device of the process: for ever, where one waits for
// another rank. REQUIRES: before the first call of CUDA in this process, and while it has a single
// thread. A CUDA_MODULE_LOADING that is set stays.
void load_kernels_at_start();

// Whether waits give the core away instead of polling on it, from now on and in the whole process:
// where its ranks have fewer cores than one each, polling takes the time of those that have work.
void block_in_waits(bool block);
bool blocks_in_waits();

struct DeviceInfo {
  std::string name;  // "NVIDIA H200"
  std::size_t memory_bytes = 0;
  int processors = 0;        // streaming multiprocessors
  int major = 0, minor = 0;  // compute capability
  std::string uuid;  // "GPU-...", in hexadecimal: the same device for every process of a host
};

// Why no device can be used: "" where one can; "this build has no CUDA", "no CUDA device (...)".
// Does not throw; makes no context on any device.
std::string missing();
int device_count();  // 0 where missing() says something
DeviceInfo device_info(int index);
std::string versions();  // "runtime 13.0, driver 13.0"

// The device of the calling thread from now on.
void use_device(int index);
int current_device();
// Streaming multiprocessors: of the calling thread's device, asked once; of whichever device of
// this process has most, 0 where there is none.
int processor_count();
int max_processors();
std::string bus_address(int index);  // "0000:3b:00.0"
// Of a device (its own, or managed), not the host's.
bool is_device_memory(const void* data);
std::pair<std::size_t, std::size_t>
free_and_total_memory();  // bytes, of the calling thread's device
void synchronize_device();
void synchronize_stream(void* stream);  // until everything on it has ended
bool is_idle(void* stream);             // whether everything on it has ended
bool is_capturing(void* stream);

// Device memory, and host memory that copies can reach without a stop (pinned). Never inside a
// step.
void* allocate(std::size_t bytes);  // not filled; throws with the size and what is free
void release(void* memory) noexcept;
void* allocate_pinned(std::size_t bytes);  // zeros
void release_pinned(void* memory) noexcept;
void pin(void* memory, std::size_t bytes);  // memory that exists already; slow
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

enum class Priority { kUsual, kHighest };  // of work that waits for a place on the device

class Stream {
 public:
  explicit Stream(Priority priority = Priority::kUsual);  // does not wait for the default stream
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
      void* stream) const;  // what comes on `stream` waits for what was before the record
  void synchronize() const;
  bool done() const;
  double seconds_since(const Event& start) const;  // REQUIRES: both with timing, and done
  void* handle() const { return handle_; }

 private:
  void* handle_ = nullptr;
};

// Device memory of `device` to host memory and so on; the kind follows from the addresses. Host
// memory of copies that shall not stop the caller is pinned.
void copy_async(void* to, const void* from, std::size_t bytes, void* stream);
void set_bytes_async(void* to, int value, std::size_t bytes, void* stream);

// Everything that is issued between begin and end on the stream (and on streams that wait for its
// events), as one thing to start.
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
  // Ends the capture. Throws CudaError where something in it cannot be captured.
  static StepGraph end_capture(void* stream);
  // Ends a capture that failed on the way.
  static void drop_capture(void* stream) noexcept;

  explicit operator bool() const { return handle_ != nullptr; }
  void launch(void* stream) const;
  std::size_t nodes() const { return nodes_; }

 private:
  void* handle_ = nullptr;
  std::size_t nodes_ = 0;
};

}  // namespace base::cuda
