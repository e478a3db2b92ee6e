// Which of the devices that the driver lists kernels run on: an older one is found here, by name,
// and not by the first kernel that it has no code for.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace base::cuda {

// The major number; kernels copy asynchronously into shared memory, which is new in 8.0.
inline constexpr int kLowestCapability = 8;

int listed_devices();  // by the driver; device_count() is 0 where kernels run on none of them

// Those that are too old, by index: "GPU 0 (Tesla T4, compute capability 7.5)". Makes no context.
std::map<int, std::string> unused_devices();

// Of `count` devices those that are left.
std::vector<int> used_devices(int count, const std::map<int, std::string>& unused);

// "GPU 0 (Tesla T4, compute capability 7.5) is not used: kernels need 8.0"; "" for none.
std::string unused_text(const std::map<int, std::string>& unused);

}  // namespace base::cuda
