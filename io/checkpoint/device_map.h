// --map-location: the target device of arrays, by the device that they were saved from.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace io {

// "auto" (this rank's device), "cpu", a device ("cuda:1"), or a list "cuda:0=cuda:1,cuda:1=cpu".
class DeviceMap {
 public:
  // Throws ConfigError with the offending part of `spec`.
  static DeviceMap parse(const std::string& spec);
  // The target for an array saved from `saved` on a rank whose own device is `own`. Throws
  // ConfigError when a list does not mention `saved`.
  std::string target(const std::string& saved, const std::string& own) const;

 private:
  std::string all_;  // "" = by list; "auto" = own
  std::vector<std::pair<std::string, std::string>> pairs_;
};

}  // namespace io
