// Replaces jpeg_decoder.cc in builds without libjpeg.
#include "io/base/files/io_error.h"
#include "io/data/images/image_decoder.h"

namespace io {

bool has_jpeg_decoder() { return false; }

DecodedImage decode_jpeg(std::span<const std::uint8_t>, const std::string& path) {
  throw ConfigError(path +
                    ": this build reads no JPEG images: install libjpeg62-turbo-dev and build "
                    "again (ENGINE_WITH_JPEG)");
}

}  // namespace io
