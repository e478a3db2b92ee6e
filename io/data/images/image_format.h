// Describes the shape and scale of images for any storage of their pixels.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace io {

// kUnit: x/255; kStandard: (x/255 - mean) / deviation per channel.
enum class Normalization { kUnit, kStandard };
constexpr std::string_view to_string(Normalization normalization) {
  return normalization == Normalization::kUnit ? "unit" : "standard";
}
// Returns nothing for another text.
constexpr std::optional<Normalization> parse_normalization(std::string_view text) {
  for (const Normalization each : {Normalization::kUnit, Normalization::kStandard})
    if (text == to_string(each)) return each;
  return std::nullopt;
}

struct ImageFormat {
  std::array<std::int64_t, 3> shape{};  // height, width, channels
  std::vector<float> mean = {},
                     deviation = {};  // per channel, for the training split scaled to [0, 1]
  bool scaled = false;                // images have any size and are scaled and cropped to the
                                      // shape

  std::int64_t count() const { return shape[0] * shape[1] * shape[2]; }  // bytes per image
};

}  // namespace io
