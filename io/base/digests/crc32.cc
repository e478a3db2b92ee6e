// Computes CRC-32 with libdeflate, ten times as fast as zlib.
#include "io/base/digests/crc32.h"

#include <libdeflate.h>

namespace base {

std::uint32_t add_crc32(std::uint32_t crc, std::span<const std::byte> bytes) {
  if (bytes.empty()) return crc;  // a null pointer would restart the checksum
  return libdeflate_crc32(crc, bytes.data(), bytes.size());
}

}  // namespace base
