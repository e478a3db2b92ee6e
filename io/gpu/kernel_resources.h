// What a kernel may take of a processor's shared memory, and how many of its blocks a processor
// holds at once. Called by the launches of .cu files; not there in a build without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace base::cuda {

// A kernel as it is launched. Throws of the functions below name it.
struct KernelUse {
  const void* kernel = nullptr;  // the address that the runtime knows it by
  const char* name = "";
  int threads = 0;               // of a block
  std::size_t shared_bytes = 0;  // dynamic, of a block
};

// Before a launch of `blocks` on the calling thread's device. Allows blocks of more than 48 KiB,
// and makes a processor set aside as much shared memory as it can for kernels whose blocks have
// more than 8 KiB: left to itself the driver may set aside enough for one block, where more fit.
// Asks the runtime once per kernel, device and thread. Throws CudaError.
void prepare_launch(const KernelUse& use, std::int64_t blocks);

// Blocks that a processor of the calling thread's device holds at once, by the runtime's count of
// registers, threads and shared memory; 0: not even one. Throws CudaError.
int resident_blocks(const KernelUse& use);

// Ten times the compute capability whose instructions the kernel's code on this device has: 80
// also where code for 8.0 runs on a newer device. Throws CudaError.
int code_version(const KernelUse& use);

// The launches of the calling thread while it lives.
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
