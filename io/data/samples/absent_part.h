// A part of batches that stays empty, since a device has the samples and finds them by their ids.
#pragma once

#include "io/data/samples/batch.h"

namespace io {

class AbsentPart : public BatchPart {
 public:
  void reserve(BatchMemory&, std::size_t) const override {}
  void fill(BatchMemory&) const override {}
};

}  // namespace io
