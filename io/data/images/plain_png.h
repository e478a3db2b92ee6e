// Decodes common PNG files in less than half of libpng's time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "io/data/images/image_decoder.h"

namespace io {

// Returns the same pixels as decode_png() for a file with 8 bits per sample, RGB or gray, with or
// without transparency, not interlaced. Returns nothing for any other file, for a damaged one, for
// which libpng reports a more specific error, and in builds without libdeflate. Throws DataError:
// kMaxPixels.
std::optional<DecodedImage> decode_plain_png(std::span<const std::uint8_t> file,
                                             const std::string& path);

}  // namespace io
