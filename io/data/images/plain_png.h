// The usual PNG files, decoded in less than half of the time that libpng takes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "io/data/images/image_decoder.h"

namespace io {

// Pixels as decode_png()'s, of a file with 8 bits a sample, RGB or gray, with transparency or
// without, not interlaced. Nothing for any other file, for a damaged one, about which libpng knows
// more to say, and in builds without libdeflate. Throws DataError: kMaxPixels.
std::optional<DecodedImage> decode_plain_png(std::span<const std::uint8_t> file,
                                             const std::string& path);

}  // namespace io
