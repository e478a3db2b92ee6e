// One contiguous, 64-byte aligned, zero-filled allocation; tensors are offsets into it.
#pragma once

#include <cstddef>
#include <functional>

#include "engine/core/device.h"

namespace engine {

inline constexpr std::size_t kAlignment = 64;

constexpr std::size_t align_up(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// An alternative to the CUDA runtime as the source of device memory: a library that moves memory
// between devices. Both functions must outlive the arenas.
struct MemorySource {
  std::function<void*(std::size_t bytes)> allocate;  // throws like cuda::allocate()
  std::function<void(void* memory)> release;         // does not throw
};

class Arena {
 public:
  Arena() = default;
  // Throws MemoryError with the size if the memory is not available; on a CUDA device
  // cuda::DeviceMemoryError, which also states what the memory is for: `purpose`, e.g.
  // "activations", and the purposes that the thread has set (io/gpu/device_memory.h). `bytes` may
  // be 0.
  explicit Arena(std::size_t bytes, Device device = {}, const char* purpose = nullptr);
  // Allocates memory of a CUDA device from `source`.
  Arena(std::size_t bytes, Device device, MemorySource source);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  Device device_;
  MemorySource source_;  // empty: the runtime's memory
};

}  // namespace engine
