// Replaces png_decoder.cc and png_encoder.cc in builds without libpng.
#include "io/base/files/io_error.h"
#include "io/data/images/image_decoder.h"
#include "io/data/images/image_encoder.h"

namespace io {

bool has_png_decoder() { return false; }

DecodedImage decode_png(std::span<const std::uint8_t>, const std::string& path) {
  throw ConfigError(
      path +
      ": this build reads no PNG images: install libpng-dev and build again (ENGINE_WITH_PNG)");
}

bool has_png_encoder() { return false; }

std::string encode_png(std::span<const std::uint8_t>, std::int64_t, std::int64_t, std::int64_t) {
  throw ConfigError(
      "this build writes no PNG images: install libpng-dev and build again (ENGINE_WITH_PNG)");
}

}  // namespace io
