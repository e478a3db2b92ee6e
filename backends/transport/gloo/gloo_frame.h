// The header of a message between two pairs, and the check of one that arrived.
#pragma once

#include <cstdint>
#include <string>

namespace backends {

struct GlooFrame {
  std::uint64_t length = 0, roffset = 0;  // bytes, and where they go in the receiver's buffer
  std::uint32_t number = 0;               // of the frame in its direction, from 0
  std::uint32_t slot = 0;                 // of the receiver's buffer
  std::uint64_t digest = 0;               // of all fields above
};
static_assert(sizeof(GlooFrame) == 32);

GlooFrame make_gloo_frame(std::uint32_t number, std::uint32_t slot, std::uint64_t length,
                          std::uint64_t roffset);

// "" if the frame is whole and has this number; else what it says and what was expected.
std::string wrong_frame_text(const GlooFrame& frame, std::uint32_t expected_number);
// "" if the frame fits into a buffer of `bytes`; else both sizes.
std::string overflow_text(const GlooFrame& frame, std::uint64_t bytes);

}  // namespace backends
