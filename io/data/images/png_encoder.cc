// Uses libpng's simplified interface, which needs no longjmp.
#include "io/data/images/image_encoder.h"

#include <png.h>

#include <cstddef>

#include "io/base/files/io_error.h"

namespace io {

bool has_png_encoder() { return true; }

std::string encode_png(std::span<const std::uint8_t> pixels, std::int64_t height,
                       std::int64_t width, std::int64_t channels) {
  if ((channels != 1 && channels != 3) || height < 1 || width < 1 ||
      static_cast<std::int64_t>(pixels.size()) != height * width * channels)
    throw ConfigError("cannot make a picture of " + std::to_string(height) + " x " +
                      std::to_string(width) + " x " + std::to_string(channels) +
                      ", expected 1 or 3 channels");
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(static_cast<std::size_t>(bytes), '\0');
  if (png_image_write_to_memory(&image, file.data(), &bytes, 0, pixels.data(), 0, nullptr) == 0)
    throw Error(std::string("libpng cannot write a picture: ") + image.message);
  file.resize(static_cast<std::size_t>(bytes));
  return file;
}

}  // namespace io
