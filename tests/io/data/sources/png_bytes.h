// Makes PNG files for tests, without the library that reads them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <zlib.h>

namespace test_support {

inline std::string png_word(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

inline std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string checked = type + data;
  const auto crc =
      crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size()));
  return png_word(static_cast<std::uint32_t>(data.size())) + checked +
         png_word(static_cast<std::uint32_t>(crc));
}

enum PngColour { kPngGrey = 0, kPngRgb = 2, kPngPalette = 3, kPngGreyAlpha = 4, kPngRgba = 6 };

// `rows`: each row's packed samples. `extra`: chunks before the pixels (PLTE, tRNS).
inline std::string png_bytes(std::uint32_t width, std::uint32_t height, PngColour colour, int bits,
                             const std::vector<std::string>& rows, const std::string& extra = "") {
  std::string raw;
  for (const std::string& row : rows) raw += '\0' + row;  // filter 0
  std::string packed(compressBound(static_cast<uLong>(raw.size())), '\0');
  uLongf size = static_cast<uLongf>(packed.size());
  compress(reinterpret_cast<Bytef*>(packed.data()), &size,
           reinterpret_cast<const Bytef*>(raw.data()), static_cast<uLong>(raw.size()));
  packed.resize(size);
  const std::string header = png_word(width) + png_word(height) + static_cast<char>(bits) +
                             static_cast<char>(colour) + std::string(3, '\0');
  return "\x89PNG\r\n\x1A\n" + png_chunk("IHDR", header) + extra + png_chunk("IDAT", packed) +
         png_chunk("IEND", "");
}

// An RGB image of one colour.
inline std::string plain_png(std::uint32_t width, std::uint32_t height, std::uint8_t red,
                             std::uint8_t green, std::uint8_t blue) {
  std::string row;
  for (std::uint32_t x = 0; x < width; ++x)
    row += {static_cast<char>(red), static_cast<char>(green), static_cast<char>(blue)};
  return png_bytes(width, height, kPngRgb, 8, std::vector<std::string>(height, row));
}

}  // namespace test_support
