// Reads the size of an image from its first bytes, without decoding it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace io {

struct ImageExtent {
  std::int64_t width = 0, height = 0;
};

// Returns the size of a PNG or JPEG file; nothing for any other or an unreadable file.
std::optional<ImageExtent> read_image_extent(const std::string& path);

}  // namespace io
