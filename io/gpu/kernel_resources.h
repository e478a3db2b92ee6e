// Controls a kernel's share of a multiprocessor's shared memory, and counts the blocks that a
// multiprocessor holds at once. Called by the launches of .cu files; absent in a build without
// CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace base::cuda {

// A kernel with its launch parameters. Exceptions of the functions below name it.
struct KernelUse {
  const void* kernel = nullptr;  // the address that the runtime knows it by
  const char* name = "";
  int threads = 0;               // per block
  std::size_t shared_bytes = 0;  // dynamic, per block
};

// Called before a launch of `blocks` on the calling thread's device. Allows blocks of more than 48
// KiB, and lets a multiprocessor reserve as much shared memory as it can for kernels whose blocks
// have more than 8 KiB: by default the driver may reserve enough for one block although more fit.
// Queries the runtime once per kernel, device and thread. Throws CudaError.
void prepare_launch(const KernelUse& use, std::int64_t blocks);

// The largest amount of shared memory that a block may have on the calling thread's device: 227 KiB
// on 9.0, 64 on 7.5, 48 on 6.0. Throws CudaError.
std::size_t max_shared_bytes();

// The number of blocks that a multiprocessor of the calling thread's device holds at once,
// according to the runtime's count of registers, threads and shared memory; 0: not even one. Throws
// CudaError.
int resident_blocks(const KernelUse& use);

// Ten times the compute capability of the instructions in the kernel's code on this device: also 80
// if code for 8.0 runs on a newer device. Throws CudaError.
int code_version(const KernelUse& use);

// Records the launches of the calling thread during its lifetime.
class LaunchRecord {
 public:
  struct Launch {
    KernelUse use;
    std::int64_t blocks = 0;
  };
  LaunchRecord();
  ~LaunchRecord();
  LaunchRecord(const LaunchRecord&) = delete;
  LaunchRecord& operator=(const LaunchRecord&) = delete;
  const std::vector<Launch>& launches() const { return launches_; }

 private:
  friend void prepare_launch(const KernelUse& use, std::int64_t blocks);
  std::vector<Launch> launches_;
  LaunchRecord* const outer_;
};

}  // namespace base::cuda
