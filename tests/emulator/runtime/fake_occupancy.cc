// How many blocks a processor of the emulated device holds, by the limits of its compute capability
// (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"). Registers are
// not known here: launch bounds are taken at their word.
#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "tests/emulator/runtime/fake_machine.h"
#include "tests/emulator/runtime/fake_settings.h"

namespace fake {
namespace {

struct Limits {
  int shared_kib, threads, blocks;  // of a processor
  int block_kib = shared_kib - 1;   // the most shared memory of a block
};

Limits limits_of(int capability) {
  switch (capability) {
    case 60:
      return {64, 2048, 32, 48};
    case 70:
      return {96, 2048, 32, 96};
    case 75:
      return {64, 1024, 16, 64};
    case 86:
      return {100, 1536, 16};
    case 87:
      return {164, 1536, 16};
    case 89:
    case 120:
    case 121:
      return {100, 1536, 24};
    case 80:
      return {164, 2048, 32};
    default:
      return {228, 2048, 32};  // 9.0, 10.0
  }
}

constexpr int kWithoutAsking = 48 * 1024;  // bytes of a block
int reserved_bytes(int capability) { return capability >= 80 ? 1024 : 0; }

struct Attributes {
  int max_dynamic_bytes = kWithoutAsking;
  int carveout = -1;  // percent; -1: the driver decides
};

struct Functions {
  std::mutex mutex;
  std::map<std::pair<int, const void*>, Attributes> of;  // device, kernel
};
Functions& functions() {
  static Functions* const made = new Functions;  // outlives static destructors
  return *made;
}

Attributes attributes_of_kernel(const void* kernel) {
  Functions& f = functions();
  const std::lock_guard lock(f.mutex);
  return f.of[{current_device, kernel}];
}

}  // namespace

int max_shared_bytes(int device) { return limits_of(capability_of(device)).block_kib * 1024; }

}  // namespace fake

using namespace fake;

extern "C" {

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  ENGINE_MAY_FAIL(cudaErrorInvalidValue);
  if (kernel == nullptr) return fail(cudaErrorInvalidValue);
  const int most = max_shared_bytes(current_device);
  Functions& f = functions();
  const std::lock_guard lock(f.mutex);
  Attributes& of = f.of[{current_device, kernel}];
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || value > most) return fail(cudaErrorInvalidValue);
    of.max_dynamic_bytes = value;
    return cudaSuccess;
  }
  if (attribute != cudaFuncAttributePreferredSharedMemoryCarveout || value < -1 || value > 100)
    return fail(cudaErrorInvalidValue);
  of.carveout = value;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  ENGINE_MAY_FAIL(cudaErrorInvalidValue);
  if (kernel == nullptr) return fail(cudaErrorInvalidValue);
  *attributes = {};
  attributes->maxDynamicSharedSizeBytes = attributes_of_kernel(kernel).max_dynamic_bytes;
  attributes->ptxVersion = attributes->binaryVersion = capability_of(current_device);
  return cudaSuccess;
}

// Where the driver decides, as little is set aside as one block needs: it need not be more.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel,
                                                          int threads, std::size_t shared_bytes) {
  ENGINE_MAY_FAIL(cudaErrorInvalidValue);
  if (kernel == nullptr || threads < 1) return fail(cudaErrorInvalidValue);
  const Limits limits = limits_of(capability_of(current_device));
  const Attributes of = attributes_of_kernel(kernel);
  const int each =
      std::max(static_cast<int>(shared_bytes) + reserved_bytes(capability_of(current_device)), 1);
  *blocks = 0;
  if (static_cast<int>(shared_bytes) > of.max_dynamic_bytes || threads > 1024) return cudaSuccess;
  const int percent = limits.shared_kib * 1024 / 100 * of.carveout;
  *blocks = std::min({limits.blocks, limits.threads / ((threads + 31) / 32 * 32),
                      std::max(of.carveout < 0 ? each : percent, each) / each});
  return cudaSuccess;
}

}  // extern "C"
