// Implements the search of arrays, and the names of sections.
#include "io/checkpoint/checkpoint.h"

#include <algorithm>

namespace io {

std::string to_string(Section section) {
  switch (section) {
    case Section::kParameter:
      return "parameter";
    case Section::kBuffer:
      return "buffer";
    case Section::kOptimizer:
      return "optimizer";
    case Section::kAveraging:
      return "averaging";
    case Section::kRankState:
      return "rank state";
    case Section::kAverage:
      return "average";
  }
  throw Error("section " + std::to_string(static_cast<int>(section)) + " does not exist");
}

const NamedArray* Checkpoint::find(Section section, const std::string& name) const {
  const auto found = std::find_if(arrays.begin(), arrays.end(), [&](const NamedArray& array) {
    return array.section == section && array.name == name;
  });
  return found == arrays.end() ? nullptr : &*found;
}

}  // namespace io
