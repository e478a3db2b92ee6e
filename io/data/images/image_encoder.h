// Encodes pixels as a PNG file, for pages and programs that show samples.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace io {

// Returns true if this build supports it (ENGINE_WITH_PNG).
bool has_png_encoder();

// `pixels` has height * width * channels bytes, from the top left, row by row; 1 channel (gray) or
// 3 (red, green, blue). Returns the file's bytes. Throws ConfigError for other channels or a build
// without libpng; Error if libpng failed.
std::string encode_png(std::span<const std::uint8_t> pixels, std::int64_t height,
                       std::int64_t width, std::int64_t channels);

}  // namespace io
