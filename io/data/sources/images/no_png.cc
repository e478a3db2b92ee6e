// Takes the place of png_decoder.cc in builds without libpng.
#include "io/base/io_error.h"
#include "io/data/sources/images/image_decoder.h"

namespace io {

bool has_png_decoder() { return false; }

DecodedImage decode_png(std::span<const std::uint8_t>, const std::string& path) {
  throw ConfigError(
      path +
      ": this build reads no PNG images: install libpng-dev and build again (ENGINE_WITH_PNG)");
}

}  // namespace io
