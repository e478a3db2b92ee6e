// Describes the shape and scale of images for any storage of their pixels.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace io {

enum class Normalization {
  kUnit,
  kStandard
};  // x/255; then (x/255 - mean) / deviation per channel

struct ImageFormat {
  std::array<std::int64_t, 3> shape{};  // height, width, channels
  std::vector<float> mean = {},
                     deviation = {};  // per channel, for the training split scaled to [0, 1]
  bool scaled = false;                // images have any size and are scaled and cropped to the
                                      // shape

  std::int64_t count() const { return shape[0] * shape[1] * shape[2]; }  // bytes per image
};

}  // namespace io
