// Names the device that holds memory and runs kernels.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace engine {

struct Device {
  enum class Kind : std::uint8_t { kCpu, kCuda };
  Kind kind = Kind::kCpu;
  int index = 0;

  bool operator==(const Device&) const = default;
};

std::string to_string(Device device);        // "cpu:0", "cuda:1"
Device parse_device(std::string_view text);  // "cpu", "cpu:1", "cuda", "cuda:0"; throws ModelError

}  // namespace engine
