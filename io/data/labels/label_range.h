// The valid range of class labels.
#pragma once

#include <cstdint>
#include <string>

namespace io {

struct LabelRange {
  std::string set;  // name of the set for messages
  std::int64_t classes = 0;
  std::int64_t unknown =
      0;  // classes that the model does not have; they come last, and do not occur in training

  // Returns the label. Throws DataError with the sample for one out of range.
  std::int32_t checked(std::int32_t label, std::int64_t sample) const {
    if (label >= 0 && label < classes + unknown) return label;
    refuse(label, sample);
  }

 private:
  [[noreturn]] void refuse(std::int32_t label, std::int64_t sample) const;
};

}  // namespace io
