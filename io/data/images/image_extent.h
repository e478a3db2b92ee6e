// The size of an image by its first bytes, without decoding it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace io {

struct ImageExtent {
  std::int64_t width = 0, height = 0;
};

// Of a PNG or JPEG file; nothing for another one, or a file that cannot be read.
std::optional<ImageExtent> read_image_extent(const std::string& path);

}  // namespace io
