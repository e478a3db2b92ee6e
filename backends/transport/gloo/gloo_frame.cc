// Makes and checks frame headers.
#include "backends/transport/gloo/gloo_frame.h"

#include <cstddef>

#include "io/base/digests/digest.h"

namespace backends {
namespace {

std::uint64_t digest_of_fields(const GlooFrame& frame) {
  return base::short_digest_of(
      {reinterpret_cast<const char*>(&frame), offsetof(GlooFrame, digest)});
}

}  // namespace

GlooFrame make_gloo_frame(std::uint32_t number, std::uint32_t slot, std::uint64_t length,
                          std::uint64_t roffset) {
  GlooFrame frame{length, roffset, number, slot, 0};
  frame.digest = digest_of_fields(frame);
  return frame;
}

std::string wrong_frame_text(const GlooFrame& frame, std::uint32_t expected_number) {
  const std::uint64_t digest = digest_of_fields(frame);
  if (frame.digest != digest)
    return "a message's header was changed on its way: digest " + base::hex_text(frame.digest) +
           ", expected " + base::hex_text(digest);
  if (frame.number != expected_number)
    return "message " + std::to_string(frame.number) + " came, expected " +
           std::to_string(expected_number);
  return {};
}

std::string overflow_text(const GlooFrame& frame, std::uint64_t bytes) {
  if (frame.roffset <= bytes && frame.length <= bytes - frame.roffset) return {};
  return "a message of " + std::to_string(frame.length) + " bytes at offset " +
         std::to_string(frame.roffset) + " came for buffer " + std::to_string(frame.slot) +
         ", which has " + std::to_string(bytes) + " bytes";
}

}  // namespace backends
