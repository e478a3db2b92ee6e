// The checksum of zip and gzip files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace base {

// Returns the CRC-32 of the data with the CRC `crc` (0: no data) followed by `bytes`.
std::uint32_t add_crc32(std::uint32_t crc, std::span<const std::byte> bytes);

}  // namespace base
