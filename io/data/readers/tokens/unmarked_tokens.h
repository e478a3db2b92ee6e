// Recognizes token files without a header that are not of 16-bit ids.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace io {

// Throws DataError that says what the file `path` looks like if `head`, its first bytes, does not
// look like 16-bit ids in little-endian order. Accepts too short a head for evidence.
void check_unmarked_tokens(const std::string& path, std::span<const std::uint8_t> head);

}  // namespace io
