// One contiguous, 64-byte aligned, zero-filled allocation; tensors are offsets into it.
#pragma once

#include <cstddef>

#include "engine/core/device.h"

namespace engine {

inline constexpr std::size_t kAlignment = 64;

constexpr std::size_t align_up(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

class Arena {
 public:
  Arena() = default;
  // Throws MemoryError when the memory cannot be had, with the size in the text; of a CUDA device
  // cuda::DeviceMemoryError, which says what for: `purpose`, "activations", or what else the thread
  // says (io/gpu/device_memory.h). `bytes` may be 0.
  explicit Arena(std::size_t bytes, Device device = {}, const char* purpose = nullptr);
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
};

}  // namespace engine
