// Detects the image format.
#include "io/data/images/image_decoder.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "io/base/files/io_error.h"
#include "io/data/files/data_file.h"
#include "io/data/files/file_format.h"

namespace io {
namespace {

template <std::size_t kCount>
bool begins_with(std::span<const std::uint8_t> file,
                 const std::array<std::uint8_t, kCount>& magic) {
  return file.size() >= kCount && std::equal(magic.begin(), magic.end(), file.begin());
}

}  // namespace

DecodedImage decode_image(std::span<const std::uint8_t> file, const std::string& path) {
  if (file.empty()) throw DataError(path + ": the file is empty, expected a PNG or JPEG image");
  if (begins_with(file, std::array<std::uint8_t, 8>{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'}))
    return decode_png(file, path);
  if (begins_with(file, std::array<std::uint8_t, 3>{0xFF, 0xD8, 0xFF}))
    return decode_jpeg(file, path);
  std::string found;
  for (const std::uint8_t byte : file.first(std::min<std::size_t>(file.size(), 4))) {
    char text[8];
    std::snprintf(text, sizeof text, " %02x", byte);
    found += text;
  }
  const std::string format = format_of(file);
  throw DataError(path + ": neither PNG nor JPEG: the file begins with" + found +
                  (format.empty() ? "" : ", " + format + ": convert it to PNG first"));
}

DecodedImage read_image(const std::string& path) {
  DataFile file(path);
  if (file.file_bytes() > kMaxImageFileBytes)
    throw DataError(path + ": found " + std::to_string(file.file_bytes()) +
                    " bytes, expected at most " + std::to_string(kMaxImageFileBytes) +
                    ", as no larger image is read");
  return decode_image(file.read_up_to(kMaxImageFileBytes), path);
}

DecodedImage make_image(std::int64_t width, std::int64_t height, const std::string& path) {
  if (width < 1 || height < 1 || width > kMaxPixels / height) {
    throw DataError(path + ": found an image of " + std::to_string(width) + " x " +
                    std::to_string(height) + ", expected 1 to " + std::to_string(kMaxPixels) +
                    " pixels in all");
  }
  return {width, height, std::vector<std::uint8_t>(static_cast<std::size_t>(3 * width * height))};
}

}  // namespace io
