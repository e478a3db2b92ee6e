// The options of averaging by fragments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/averaging/codes/lossy_code.h"
#include "engine/averaging/policies/outer_options.h"

namespace engine {

// The period K is `every`.
struct StreamingOptions {
  std::string name = "streaming";
  std::int64_t every = 1;
  std::int64_t fragments = 0;  // at most the number of layers; 0: choose_fragments() (fragments.h)
  std::int64_t overlap = 0;    // from 0 to every - 1
  double mixing = 0.5;         // above 0, at most 1
  OuterOptions outer;
  std::optional<LossyOptions> lossy = {};  // sends changes of the parameters as codes
};

}  // namespace engine
