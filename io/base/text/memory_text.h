// Formats sizes of memory in the unit that fits.
#pragma once

#include <cstdint>
#include <string>

namespace base {

// Returns three digits of the size in B, KiB, MiB, GiB or TiB: "1.25 GiB", "61 MiB", "300 KiB".
std::string memory_text(std::uint64_t bytes);
// Returns a whole number of KiB, from 10 MiB on of MiB, rounded up: so much is enough, and an
// option can take it.
std::string enough_memory_text(std::uint64_t bytes);

}  // namespace base
