// Finds the devices that the driver lists, and those of them that kernels run on.
#include <cuda_runtime_api.h>

#include <optional>
#include <string>
#include <utility>

#include "io/gpu/compiled_code.h"
#include "io/gpu/cuda_runtime.h"
#include "io/gpu/usable_devices.h"

namespace base::cuda {
namespace {

std::string name_for_people(int index) {
  const DeviceInfo info = device_info(index);
  return "GPU " + std::to_string(index) + " (" + info.name + ", compute capability " +
         std::to_string(info.major) + "." + std::to_string(info.minor) + ")";
}

// Returns the compute capability; nothing for a device that does not respond.
std::optional<std::pair<int, int>> capability_of(int index) {
  int major = 0, minor = 0;
  cudaError_t code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
  if (code == cudaSuccess)
    code = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index);
  if (code == cudaSuccess) return std::pair{major, minor};
  cudaGetLastError();
  return std::nullopt;
}

}  // namespace

std::string missing() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) {
    const UnusedDevices unused = unused_devices();
    return static_cast<int>(unused.size()) < count ? "" : unused_text(unused);
  }
  cudaGetLastError();
  int driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0)
    return "no CUDA device (no NVIDIA driver is installed)";
  return std::string("no CUDA device (") +
         (code == cudaSuccess ? "the driver lists none" : cudaGetErrorString(code)) + ")";
}

int listed_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return count;
}

UnusedDevices unused_devices() {
  UnusedDevices unused;
  const int listed = listed_devices();
  for (int i = 0; i < listed; ++i) {
    // A device that does not respond is not excluded here: the call that fails on it reports the
    // reason.
    const auto capability = capability_of(i);
    if (!capability) continue;
    const std::string why =
        why_unused(capability->first, capability->second, compiled_architectures());
    if (!why.empty()) unused[i] = {name_for_people(i), why};
  }
  return unused;
}

std::string code_text(int device) {
  const auto capability = capability_of(device);
  return capability ? code_text(compiled_architectures(), capability->first, capability->second)
                    : "";
}

std::string translation_notice(int device) {
  const auto capability = capability_of(device);
  const bool translated = capability && runs_on(compiled_architectures(), capability->first,
                                                capability->second) == Runs::kTranslated;
  return translated ? translation_text(name_for_people(device)) : "";
}

int device_count() {
  const int listed = listed_devices();
  return static_cast<int>(unused_devices().size()) < listed ? listed : 0;
}

}  // namespace base::cuda
