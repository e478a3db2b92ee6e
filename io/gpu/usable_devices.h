// Determines which of the devices that the driver lists can run the kernels: an unsuitable device
// is detected here and named, and not by the first kernel that has no code for it.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace base::cuda {

// The major number.
inline constexpr int kLowestCapability = 6;

int listed_devices();  // by the driver; device_count() is 0 if kernels run on none of them

struct UnusedDevice {
  std::string name;  // "GPU 0 (Tesla M40, compute capability 5.2)"
  std::string why;   // "kernels need 6.0"
};
using UnusedDevices = std::map<int, UnusedDevice>;  // by device index

// The devices that are too old, or for which this program contains no code. Creates no context.
UnusedDevices unused_devices();
// Returns "kernels need 6.0", "kernels were compiled for sm_90a; a build with
// -DENGINE_CUDA_ARCHITECTURES=75-real runs on it", or "" if they run.
// `architectures` is as in compiled_code.h.
std::string why_unused(int major, int minor, const std::string& architectures);
// code_text() of compiled_code.h for this program's code.
std::string code_text(int device);
// Returns "" for a device that runs this program's machine code; otherwise the cost of its first
// start.
std::string translation_notice(int device);

// Returns the indices of the `count` devices that are not unused.
std::vector<int> used_devices(int count, const UnusedDevices& unused);

// Returns "GPU 0 (Tesla M40, compute capability 5.2) is not used: kernels need 6.0"; "" for none.
std::string unused_text(const UnusedDevices& unused);

}  // namespace base::cuda
