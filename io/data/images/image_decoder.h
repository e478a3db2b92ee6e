// Decodes PNG and JPEG files to pixels.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace io {

struct DecodedImage {
  std::int64_t width = 0, height = 0;
  std::vector<std::uint8_t>
      pixels;  // height * width * 3: red, green, blue, from the top left, row by row
};

// The first bytes determine the format, not the name. Gray, palettes and CMYK become RGB, 16 bits
// become 8, transparency is dropped (as in Pillow's convert("RGB")), color profiles and orientation
// are ignored. `path` names the file in messages. Throws DataError: another format, damaged,
// truncated, more than kMaxPixels; ConfigError: this build does not have the library.
DecodedImage decode_image(std::span<const std::uint8_t> file, const std::string& path);

constexpr std::int64_t kMaxPixels = std::int64_t{1}
                                    << 27;  // 134 million; a small file can claim a huge size

// Reads and decodes a file. Throws as DataFile and decode_image(), and DataError for a file of more
// than kMaxImageFileBytes before it is read.
DecodedImage read_image(const std::string& path);

constexpr std::uint64_t kMaxImageFileBytes = 9 * kMaxPixels;  // 4 channels of 16 bits, plain

// The decoders of one format each: the library's, or a stub that throws ConfigError.
bool has_png_decoder();
bool has_jpeg_decoder();
DecodedImage decode_png(std::span<const std::uint8_t> file, const std::string& path);
DecodedImage decode_jpeg(std::span<const std::uint8_t> file, const std::string& path);

// For the decoders: allocates the pixels; throws DataError for none or too many of them.
DecodedImage make_image(std::int64_t width, std::int64_t height, const std::string& path);

}  // namespace io
