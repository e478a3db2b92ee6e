// Which of the devices that the driver lists kernels run on: one that they do not run on is found
// here, by name, and not by the first kernel that it has no code for.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace base::cuda {

// The major number; kernels copy asynchronously into shared memory, which is new in 8.0.
inline constexpr int kLowestCapability = 8;

int listed_devices();  // by the driver; device_count() is 0 where kernels run on none of them

struct UnusedDevice {
  std::string name;  // "GPU 0 (Tesla T4, compute capability 7.5)"
  std::string why;   // "kernels need 8.0"
};
using UnusedDevices = std::map<int, UnusedDevice>;  // by index

// Those that are too old, or for which this program holds no code. Makes no context.
UnusedDevices unused_devices();
// "kernels need 8.0", "kernels were compiled for sm_90a"; "" where they run. `architectures` as in
// compiled_code.h.
std::string why_unused(int major, int minor, const std::string& architectures);
// As code_text() in compiled_code.h, of this program's code.
std::string code_text(int device);
// "" for one that runs this program's machine code; else what the first start on it takes.
std::string translation_notice(int device);

// Of `count` devices those that are left.
std::vector<int> used_devices(int count, const UnusedDevices& unused);

// "GPU 0 (Tesla T4, compute capability 7.5) is not used: kernels need 8.0"; "" for none.
std::string unused_text(const UnusedDevices& unused);

}  // namespace base::cuda
