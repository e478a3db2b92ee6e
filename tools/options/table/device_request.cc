// Names of devices, and back.
#include "tools/options/table/device_request.h"

#include <algorithm>
#include <charconv>

namespace tools {
namespace {

using Kind = DeviceName::Kind;

}  // namespace

std::optional<DeviceName> parse_device_name(std::string_view text) {
  if (text == "auto") return DeviceName{Kind::kAuto};
  if (text == "cpu") return DeviceName{Kind::kCpu};
  if (text == "cuda") return DeviceName{Kind::kCuda};
  const auto device = parse_numbered_device(text);
  if (!device || device->kind != engine::Device::Kind::kCuda) return std::nullopt;
  return DeviceName{Kind::kNumbered, device->index};
}

std::string to_string(DeviceName name) {
  switch (name.kind) {
    case Kind::kAuto:
      return "auto";
    case Kind::kCpu:
      return "cpu";
    case Kind::kCuda:
      return "cuda";
    case Kind::kNumbered:
      break;
  }
  return "cuda:" + std::to_string(name.number);
}

std::optional<engine::Device> parse_numbered_device(std::string_view text) {
  constexpr int kMaxNumber = 1023;
  using engine::Device;
  const std::string_view number = text.substr(std::min(text.find(':') + 1, text.size()));
  int index = -1;
  std::from_chars(number.data(), number.data() + number.size(), index);
  for (const Device device : {Device{Device::Kind::kCpu, index}, {Device::Kind::kCuda, index}})
    if (index >= 0 && index <= kMaxNumber && engine::to_string(device) == text) return device;
  return std::nullopt;
}

bool DeviceRequest::names_cpu() const {
  return devices.empty() ? device.kind == Kind::kCpu
                         : devices.front().kind == engine::Device::Kind::kCpu;
}

bool DeviceRequest::names_cuda() const {
  return devices.empty() ? device.kind == Kind::kCuda || device.kind == Kind::kNumbered
                         : devices.front().kind == engine::Device::Kind::kCuda;
}

std::string DeviceRequest::named_text() const {
  return devices.empty() ? to_string(device) : engine::to_string(devices.front());
}

}  // namespace tools
