// Device memory that cannot be had: how much of it was wanted for what, and what is free.
#pragma once

#include <cstddef>
#include <string>

#include "io/gpu/cuda_runtime.h"

namespace base::cuda {

// While it lives, what the calling thread allocates on a device is for this: "activations". Within
// another one: "activations of evaluation".
class MemoryPurpose {
 public:
  explicit MemoryPurpose(const char* what);  // which outlives it
  ~MemoryPurpose();
  MemoryPurpose(const MemoryPurpose&) = delete;
  MemoryPurpose& operator=(const MemoryPurpose&) = delete;
  // Of the calling thread; "" where none lives.
  static std::string text();

 private:
  const char* what_;
  const MemoryPurpose* outer_;
};

struct MemoryShortage {
  int device = 0;
  std::size_t wanted = 0, free = 0, total = 0;  // bytes
  std::size_t held = 0;                         // of the device, by this process's allocate()
};

// "out of memory on cuda:0: 3.20 GiB wanted for activations, 1.10 of 4.00 GiB are free".
class DeviceMemoryError : public CudaError {
 public:
  // For the purpose of the calling thread.
  explicit DeviceMemoryError(const MemoryShortage& shortage);
  const MemoryShortage& shortage() const { return shortage_; }

 private:
  MemoryShortage shortage_;
};

// What allocate() and release() tell.
void note_allocated(const void* memory, std::size_t bytes, int device);
void note_released(const void* memory) noexcept;

}  // namespace base::cuda
