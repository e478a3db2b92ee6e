// Makes PNG files for tests, without the library that reads them.
#pragma once

#include <algorithm>
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

// `stored`: the rows, each behind the number of its filter. `extra`: chunks before the pixels
// (PLTE, tRNS). With `part` the packed rows lie in chunks of so many bytes.
inline std::string png_of_stored(std::uint32_t width, std::uint32_t height, PngColour colour,
                                 int bits, const std::string& stored, const std::string& extra = "",
                                 std::size_t part = std::string::npos) {
  std::string packed(compressBound(static_cast<uLong>(stored.size())), '\0');
  uLongf size = static_cast<uLongf>(packed.size());
  compress(reinterpret_cast<Bytef*>(packed.data()), &size,
           reinterpret_cast<const Bytef*>(stored.data()), static_cast<uLong>(stored.size()));
  packed.resize(size);
  std::string file =
      "\x89PNG\r\n\x1A\n" +
      png_chunk("IHDR", png_word(width) + png_word(height) + static_cast<char>(bits) +
                            static_cast<char>(colour) + std::string(3, '\0'));
  file += extra;
  for (std::size_t at = 0; at < packed.size(); at += std::min(part, packed.size() - at))
    file += png_chunk("IDAT", packed.substr(at, part));
  return file + png_chunk("IEND", "");
}

// `rows`: each row's packed samples.
inline std::string png_bytes(std::uint32_t width, std::uint32_t height, PngColour colour, int bits,
                             const std::vector<std::string>& rows, const std::string& extra = "") {
  std::string stored;
  for (const std::string& row : rows) stored += '\0' + row;  // filter 0
  return png_of_stored(width, height, colour, bits, stored, extra);
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
