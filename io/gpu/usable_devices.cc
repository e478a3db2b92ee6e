// What is said of devices that are too old; the same in a build without CUDA.
#include "io/gpu/usable_devices.h"

namespace base::cuda {

std::vector<int> used_devices(int count, const std::map<int, std::string>& unused) {
  std::vector<int> used;
  for (int i = 0; i < count; ++i)
    if (!unused.contains(i)) used.push_back(i);
  return used;
}

std::string unused_text(const std::map<int, std::string>& unused) {
  std::string text;
  for (const auto& [index, name] : unused) text += (text.empty() ? "" : ", ") + name;
  if (text.empty()) return text;
  return text + (unused.size() == 1 ? " is" : " are") + " not used: kernels need " +
         std::to_string(kLowestCapability) + ".0";
}

}  // namespace base::cuda
