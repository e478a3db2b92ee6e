// Formats the error for a label out of range.
#include "io/data/labels/label_range.h"

#include "io/base/files/io_error.h"

namespace io {

void LabelRange::refuse(std::int32_t label, std::int64_t sample) const {
  throw DataError("data set " + set + ": label out of range at sample " + std::to_string(sample) +
                  ": found " + std::to_string(label) + ", expected 0.." +
                  std::to_string(classes - 1));
}

}  // namespace io
