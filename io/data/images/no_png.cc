// Takes the place of png_decoder.cc in builds without libpng.
#include "io/data/images/image_decoder.h"
#include "io/io_error.h"

namespace io {

bool has_png_decoder() { return false; }

DecodedImage decode_png(std::span<const std::uint8_t>, const std::string& path) {
  throw ConfigError(path + ": this build reads no PNG images: install libpng-dev and build again (ENGINE_WITH_PNG)");
}

}  // namespace io
