// The classes that labels may have.
#pragma once

#include <cstdint>
#include <string>

namespace io {

struct LabelRange {
  std::string set;  // its name, for messages
  std::int64_t classes = 0;
  std::int64_t unknown =
      0;  // classes that the model lacks; they come last, and a training has none

  // The label. Throws DataError, naming the sample, for one outside.
  std::int32_t checked(std::int32_t label, std::int64_t sample) const {
    if (label >= 0 && label < classes + unknown) return label;
    refuse(label, sample);
  }

 private:
  [[noreturn]] void refuse(std::int32_t label, std::int64_t sample) const;
};

}  // namespace io
