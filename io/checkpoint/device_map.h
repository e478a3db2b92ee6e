// --map-location: maps the device that an array was saved from to its target device.
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
  // Returns the target of an array saved from `saved` on a rank whose own device is `own`. Throws
  // ConfigError if a list does not contain `saved`.
  std::string target(const std::string& saved, const std::string& own) const;

 private:
  std::string all_;  // "" = by list; "auto" = own
  std::vector<std::pair<std::string, std::string>> pairs_;
};

}  // namespace io
