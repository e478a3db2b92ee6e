// The header of a message between two pairs, and the check of a received one.
#pragma once

#include <cstdint>
#include <string>

namespace backends {

struct GlooFrame {
  std::uint64_t length = 0, roffset = 0;  // bytes, and their offset in the receiver's buffer
  std::uint32_t number = 0;               // number of the frame in its direction, from 0
  std::uint32_t slot = 0;                 // slot of the receiver's buffer
  std::uint64_t digest = 0;               // digest of all fields above
};
static_assert(sizeof(GlooFrame) == 32);

GlooFrame make_gloo_frame(std::uint32_t number, std::uint32_t slot, std::uint64_t length,
                          std::uint64_t roffset);

// Returns "" if the frame is intact and has this number; else its values and the expected ones.
std::string wrong_frame_text(const GlooFrame& frame, std::uint32_t expected_number);
// Returns "" if the frame fits into a buffer of `bytes`; else both sizes.
std::string overflow_text(const GlooFrame& frame, std::uint64_t bytes);

}  // namespace backends
