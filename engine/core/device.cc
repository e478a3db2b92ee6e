// Converts Device to and from text.
#include "engine/core/device.h"

#include <charconv>

#include "engine/core/error.h"

namespace engine {

std::string to_string(Device device) {
  return (device.kind == Device::Kind::kCpu ? "cpu:" : "cuda:") + std::to_string(device.index);
}

Device parse_device(std::string_view text) {
  const auto colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  Device device;
  if (kind == "cuda") {
    device.kind = Device::Kind::kCuda;
  } else if (kind != "cpu") {
    throw ModelError("unknown device '" + std::string(text) +
                     "': expected cpu, cpu:N, cuda or cuda:N");
  }
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), device.index);
    if (error != std::errc() || end != digits.data() + digits.size() || device.index < 0)
      throw ModelError("device '" + std::string(text) +
                       "' has no valid index: expected cpu:N or cuda:N");
  }
  return device;
}

}  // namespace engine
