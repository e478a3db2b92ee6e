// Holds a context of a CUDA device open until the process that started it ends, so that the driver
// stays loaded while many short processes use the device one after the other.
//
// Usage: hold_device INDEX. Prints "held after S s" when the context is there. Exit code 77: no
// such device can be used.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "io/gpu/cuda_runtime.h"

int main(int argc, char** argv) {
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) return 0;  // it has ended before the line above
  const auto begin = std::chrono::steady_clock::now();
  try {
    base::cuda::use_device(argc > 1 ? std::atoi(argv[1]) : 0);
    base::cuda::synchronize_device();  // makes the context
  } catch (const base::cuda::CudaError& error) {
    std::printf("%s\n", error.what());
    return 77;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("held after %.2f s\n", took.count());
  std::fflush(stdout);
  for (;;) pause();
}
