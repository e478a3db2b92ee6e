// CUDA's runtime as communicators use it: errors that name the call, and streams, events and memory
// that end by themselves.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "backends/backend_error.h"

namespace backends {

// Throws PeerError "CALL: what CUDA says" unless the code is success.
void check_cuda(cudaError_t code, const char* call);

// Of the calling thread's device; does not wait for the default stream.
class CudaStream {
 public:
  CudaStream();
  ~CudaStream() { cudaStreamDestroy(handle_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  cudaStream_t get() const { return handle_; }

 private:
  cudaStream_t handle_ = nullptr;
};

class CudaEvent {
 public:
  CudaEvent();
  ~CudaEvent() { cudaEventDestroy(handle_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  void record(cudaStream_t stream);
  void make_wait(cudaStream_t stream)
      const;  // what comes on `stream` waits for what was before the last record, if any
  bool done() const;

 private:
  cudaEvent_t handle_ = nullptr;
};

class PinnedMemory {
 public:
  explicit PinnedMemory(std::size_t bytes);
  ~PinnedMemory() { cudaFreeHost(data_); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

void copy_on(cudaStream_t stream, void* to, const void* from,
             std::size_t bytes);  // either side may be the device's
bool stream_is_idle(cudaStream_t stream);
bool is_capturing(cudaStream_t stream);
// Throws ConfigurationError unless `data` is a device's memory; `backend` is who says so.
void require_device_memory(const void* data, int device, const char* backend);
// "" where CUDA has a device for the calling thread, else why not. Makes CUDA start in this
// process.
std::string no_device_reason();

// A wait with a deadline that another thread can end.
class Patience {
 public:
  explicit Patience(std::chrono::milliseconds timeout) : timeout_(timeout) {}
  void abort(std::string_view reason) noexcept;
  bool aborted() const { return aborted_; }
  // Throws PeerError "aborted: WHY".
  void throw_if_aborted() const;
  // Until done() is true. Throws PeerError when aborted, and "timeout after N ms in WHAT", WHAT
  // being what() returns.
  template <typename What, typename Done>
  void until(const What& what, const Done& done) const {
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    for (int spin = 0; !done(); ++spin) {
      throw_if_aborted();
      if (std::chrono::steady_clock::now() >= deadline)
        throw PeerError("timeout after " + std::to_string(timeout_.count()) + " ms in " + what());
      if (spin > kSpins) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  static constexpr int kSpins = 10'000;  // polls before the core is left to others for longer
  const std::chrono::milliseconds timeout_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  std::string reason_;
};

}  // namespace backends
