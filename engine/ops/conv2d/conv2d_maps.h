// How the convolution kernels see images: maps with a rim of zeros, so that the loops over taps
// know no edges, worked off in groups of whole images. Only for sources compiled once per
// instruction set.
#pragma once

#include "engine/ops/gemm/gemm_tiles.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

// Places (pixels of a result) that are worked on together: enough that a panel of weights pays for
// being loaded into L1, few enough that their inputs stay in L2. Small maps are grouped to reach
// it, large ones are cut into blocks of it.
inline constexpr std::int64_t kPlaceBlock = 256;

ENGINE_INLINE std::int64_t round_up_16(std::int64_t floats) { return (floats + 15) / 16 * 16; }

// Images [h, w, channels] read through a rim of zeros. Without a rim they are read where they lie.
struct Maps {
  const float* data;
  std::int64_t h, w, channels;
  std::int64_t top, left, bottom, right;

  ENGINE_INLINE bool rimless() const { return (top | left | bottom | right) == 0; }
  ENGINE_INLINE std::int64_t pitch() const { return (left + w + right) * channels; }
  ENGINE_INLINE std::int64_t padded_floats() const { return (top + h + bottom) * pitch(); }
  // Floats of a buffer for `images` of them.
  ENGINE_INLINE std::int64_t buffer_floats(std::int64_t images) const {
    return rimless() ? 0 : round_up_16(images * padded_floats());
  }

  // To be called once per buffer: the rims stay zero ever after.
  ENGINE_INLINE void clear(float* buffer, std::int64_t images) const {
    __builtin_memset(buffer, 0, static_cast<unsigned long>(buffer_floats(images)) * sizeof(float));
  }

  // Images [first, first + count), padded_floats() apart; copied into `buffer` when there is a rim.
  const float* padded(std::int64_t first, std::int64_t count, float* buffer) const {
    const float* from = data + first * h * w * channels;
    if (rimless()) return from;
    const unsigned long row_bytes = static_cast<unsigned long>(w * channels) * sizeof(float);
    for (std::int64_t image = 0; image < count; ++image) {
      float* to = buffer + image * padded_floats() + top * pitch() + left * channels;
      for (std::int64_t y = 0; y < h; ++y, from += w * channels)
        __builtin_memcpy(to + y * pitch(), from, row_bytes);
    }
    return buffer;
  }
};

// How many images of `places` places each make a group, at most n.
ENGINE_INLINE std::int64_t group_images(std::int64_t places, std::int64_t n) {
  return places == 0 ? 1 : larger(1, smaller(kPlaceBlock / places, n));
}

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
