// Attributes of kernels belong to the process, per device; each thread remembers which it has set.
#include "io/gpu/kernel_resources.h"

#include <cuda_runtime_api.h>

#include <set>
#include <tuple>

#include "io/gpu/cuda_runtime.h"

namespace base::cuda {
namespace {

constexpr std::size_t kWithoutAsking = std::size_t{48} * 1024;  // without opt-in
constexpr std::size_t kSmall = std::size_t{8} * 1024;

thread_local LaunchRecord* record_of_thread = nullptr;

void set_attribute(const KernelUse& use, cudaFuncAttribute attribute, int value) {
  check(static_cast<int>(cudaFuncSetAttribute(use.kernel, attribute, value)),
        "cudaFuncSetAttribute", use.name);
}

void allow_shared_memory(const KernelUse& use) {
  if (use.shared_bytes <= kSmall) return;
  thread_local std::set<std::tuple<const void*, int, std::size_t>> allowed;
  const std::tuple key{use.kernel, current_device(), use.shared_bytes};
  if (allowed.contains(key)) return;
  if (use.shared_bytes > kWithoutAsking)
    set_attribute(use, cudaFuncAttributeMaxDynamicSharedMemorySize,
                  static_cast<int>(use.shared_bytes));
  constexpr int kAllThereIs = 100;  // percent (cudaSharedmemCarveoutMaxShared)
  set_attribute(use, cudaFuncAttributePreferredSharedMemoryCarveout, kAllThereIs);
  allowed.insert(key);
}

}  // namespace

void prepare_launch(const KernelUse& use, std::int64_t blocks) {
  allow_shared_memory(use);
  if (record_of_thread != nullptr) record_of_thread->launches_.push_back({use, blocks});
}

std::size_t max_shared_bytes() {
  thread_local int asked = -1;
  thread_local int most = 0;
  if (const int device = current_device(); device != asked) {
    check(static_cast<int>(
              cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device)),
          "cudaDeviceGetAttribute");
    asked = device;
  }
  return static_cast<std::size_t>(most);
}

int resident_blocks(const KernelUse& use) {
  if (use.shared_bytes > max_shared_bytes()) return 0;
  allow_shared_memory(use);
  int blocks = 0;
  check(static_cast<int>(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &blocks, use.kernel, use.threads, use.shared_bytes)),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor", use.name);
  return blocks;
}

int code_version(const KernelUse& use) {
  cudaFuncAttributes attributes{};
  check(static_cast<int>(cudaFuncGetAttributes(&attributes, use.kernel)), "cudaFuncGetAttributes",
        use.name);
  return attributes.ptxVersion;
}

LaunchRecord::LaunchRecord() : outer_(record_of_thread) { record_of_thread = this; }
LaunchRecord::~LaunchRecord() { record_of_thread = outer_; }

}  // namespace base::cuda
