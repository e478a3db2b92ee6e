// Reports device memory that cannot be allocated: its size and purpose, and the free memory.
#pragma once

#include <cstddef>
#include <string>

#include "io/gpu/cuda_runtime.h"

namespace base::cuda {

// During its lifetime, device memory that the calling thread allocates has this purpose:
// "activations". Within another one: "activations of evaluation".
class MemoryPurpose {
 public:
  explicit MemoryPurpose(const char* what);  // `what` must outlive it
  ~MemoryPurpose();
  MemoryPurpose(const MemoryPurpose&) = delete;
  MemoryPurpose& operator=(const MemoryPurpose&) = delete;
  // The purpose of the calling thread; "" if there is none.
  static std::string text();

 private:
  const char* what_;
  const MemoryPurpose* outer_;
};

struct MemoryShortage {
  int device = 0;
  std::size_t wanted = 0, free = 0, total = 0;  // bytes
  std::size_t held = 0;                         // on the device, by this process's allocate()
};

// "out of memory on cuda:0: 3.20 GiB wanted for activations, 1.10 of 4.00 GiB are free".
class DeviceMemoryError : public CudaError {
 public:
  // Uses the purpose of the calling thread.
  explicit DeviceMemoryError(const MemoryShortage& shortage);
  const MemoryShortage& shortage() const { return shortage_; }

 private:
  MemoryShortage shortage_;
};

// Called by allocate() and release().
void note_allocated(const void* memory, std::size_t bytes, int device);
void note_released(const void* memory) noexcept;

}  // namespace base::cuda
