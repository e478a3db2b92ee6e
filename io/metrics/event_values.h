// The values of event files that are more than a number or a text.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace io {

struct Hyperparameter {
  std::string name;
  std::variant<double, bool, std::string> value;
};

struct EventImage {
  std::string tag, png;
  std::int64_t height = 0, width = 0, channels = 3;
};

}  // namespace io
