// Replaces plain_png.cc in builds without libdeflate.
#include "io/data/images/plain_png.h"

namespace io {

std::optional<DecodedImage> decode_plain_png(std::span<const std::uint8_t>, const std::string&) {
  return std::nullopt;
}

}  // namespace io
