// PNG stores the size in its first block (W3C PNG, 11.2.2), JPEG in the segment that starts a frame
// (ITU T.81, B.2.2), after segments of any length.
#include "io/data/images/image_extent.h"

#include <array>
#include <fstream>

namespace io {
namespace {

using HeaderBytes = std::array<unsigned char, 24>;

bool read(std::ifstream& file, HeaderBytes& bytes, std::streamsize count) {
  return static_cast<bool>(file.read(reinterpret_cast<char*>(bytes.data()), count));
}

std::int64_t big_endian(const unsigned char* at, int count) {
  std::int64_t value = 0;
  for (int i = 0; i < count; ++i) value = value << 8 | at[i];
  return value;
}

// A segment has FF, its code, its length (which includes itself) and its contents.
std::optional<ImageExtent> find_frame(std::ifstream& file) {
  HeaderBytes bytes{};
  file.seekg(2);
  constexpr int kMaxSegments = 1000;
  for (int i = 0; i < kMaxSegments && read(file, bytes, 4); ++i) {
    if (bytes[0] != 0xFF) return std::nullopt;
    const int code = bytes[1];
    if (code == 0xFF) {  // may precede a code
      file.seekg(-3, std::ios::cur);
      continue;
    }
    const bool frame = code >= 0xC0 && code <= 0xCF && code != 0xC4 && code != 0xC8 && code != 0xCC;
    if (!frame) {
      file.seekg(big_endian(&bytes[2], 2) - 2, std::ios::cur);
      continue;
    }
    if (!read(file, bytes, 5)) return std::nullopt;  // bits per sample, height, width
    return ImageExtent{big_endian(&bytes[3], 2), big_endian(&bytes[1], 2)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<ImageExtent> read_image_extent(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  HeaderBytes bytes{};
  if (!read(file, bytes, 24)) return std::nullopt;
  if (bytes[0] == 0xFF && bytes[1] == 0xD8) return find_frame(file);
  if (bytes[0] != 0x89 || bytes[1] != 'P' || bytes[2] != 'N' || bytes[3] != 'G')
    return std::nullopt;
  return ImageExtent{big_endian(&bytes[16], 4), big_endian(&bytes[20], 4)};
}

}  // namespace io
