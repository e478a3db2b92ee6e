// Asks the runtime which code of a small kernel the device runs.
#include "engine/ops/device/warpgroup_code_cuda.h"

#include "engine/ops/device/device_code.h"
#include "io/gpu/compiled_code.h"
#include "io/gpu/kernel_resources.h"

namespace engine::ops::cuda {
namespace {

// Never launched: all kernels of the program are compiled for the same architectures.
__global__ void any_code(int* to) { *to = 1; }

bool device_runs_it() {
  void (*const kernel)(int*) = any_code;
  return engine::cuda::device_info(engine::cuda::current_device()).major == 9 &&
         engine::cuda::compiled_architectures().find("90a") != std::string::npos &&
         engine::cuda::code_version(
             {reinterpret_cast<const void*>(kernel), "any_code", kWarp, 0}) >= 90;
}

}  // namespace

bool has_warpgroup_code() {
  thread_local int asked = -1;
  thread_local bool found = false;
  if (const int device = engine::cuda::current_device(); device != asked) {
    found = device_runs_it();
    asked = device;
  }
  return found;
}

}  // namespace engine::ops::cuda
