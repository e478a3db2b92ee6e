// The check sum of zip and gzip files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace base {

// CRC-32 of what `crc` is of (0: nothing) followed by `bytes`.
std::uint32_t add_crc32(std::uint32_t crc, std::span<const std::byte> bytes);

}  // namespace base
