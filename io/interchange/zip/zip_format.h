// Sizes and flags of the ZIP format (PKWARE's APPNOTE.TXT) for the writer and the reader.
#pragma once

#include <cstdint>

namespace io {

// The sizes of the fixed part of each record.
inline constexpr std::uint64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22,
                               kEnd64Bytes = 56, kLocator64Bytes = 20;
inline constexpr std::uint16_t kUtf8 = 1 << 11;  // flag: the member's name is UTF-8

}  // namespace io
