// Formats messages about devices that kernels do not run on; the same in a build without CUDA.
#include "io/gpu/usable_devices.h"

#include "io/gpu/compiled_code.h"

namespace base::cuda {

std::string why_unused(int major, int minor, const std::string& architectures) {
  if (major < kLowestCapability) return "kernels need " + std::to_string(kLowestCapability) + ".0";
  if (runs_on(architectures, major, minor) == Runs::kNo)
    return "kernels were compiled for " + architectures_text(architectures) +
           "; a build with -DENGINE_CUDA_ARCHITECTURES=" + std::to_string(major) +
           std::to_string(minor) + "-real runs on it";
  return "";
}

std::vector<int> used_devices(int count, const UnusedDevices& unused) {
  std::vector<int> used;
  for (int i = 0; i < count; ++i)
    if (!unused.contains(i)) used.push_back(i);
  return used;
}

std::string unused_text(const UnusedDevices& unused) {
  std::map<std::string, std::vector<std::string>> names;  // for each reason
  for (const auto& [index, device] : unused) names[device.why].push_back(device.name);
  std::string text;
  for (const auto& [why, devices] : names) {
    text += text.empty() ? "" : "; ";
    for (std::size_t i = 0; i < devices.size(); ++i) text += (i == 0 ? "" : ", ") + devices[i];
    text += (devices.size() == 1 ? " is not used: " : " are not used: ") + why;
  }
  return text;
}

}  // namespace base::cuda
