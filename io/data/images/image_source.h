// Interface for the images of a data set that is not held in memory.
#pragma once

#include <cstdint>
#include <span>

#include "io/base/digests/digest.h"
#include "io/base/numbers/split_mix.h"

namespace io {

class ImageSource {
 public:
  virtual ~ImageSource() = default;

  // Writes image `id` as bytes in the shape of the data set. `crop` is nullptr, or the random
  // numbers for a part of random size and shape instead of the whole. Any number of threads may
  // call this concurrently. Throws DataError with the name of the file.
  virtual void read(std::int64_t id, SplitMix* crop, std::span<std::uint8_t> out) const = 0;
  // Adds data that identify these images without reading them: their names and sizes.
  virtual void add_to(base::StreamDigest& digest) const = 0;
};

}  // namespace io
