// Replaces crc32.cc in builds without libdeflate.
#include <zlib.h>

#include "io/base/digests/crc32.h"

namespace base {

std::uint32_t add_crc32(std::uint32_t crc, std::span<const std::byte> bytes) {
  if (bytes.empty()) return crc;  // a null pointer would restart the checksum
  return static_cast<std::uint32_t>(
      crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace base
