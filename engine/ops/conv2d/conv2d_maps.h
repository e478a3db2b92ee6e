// How the convolution kernels see images: maps with a rim of zeros, so that the loops over taps
// know no edges, worked off in groups of whole images. In bf16 (gemm_tiles.h) maps are rounded and
// paired on the way into a buffer, rim or not; those stored in bf16 are only copied. Only for
// sources compiled once per instruction set.
#pragma once

#include "engine/ops/gemm/gemm_tiles.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

// Places (pixels of a result) that are worked on together: enough that a panel of weights pays for
// being loaded into L1, few enough that their inputs stay in L2. Small maps are grouped to reach
// it, large ones are cut into blocks of it.
inline constexpr std::int64_t kPlaceBlock = 256;

ENGINE_INLINE std::int64_t round_up_16(std::int64_t floats) { return (floats + 15) / 16 * 16; }

// `pixels` pixels side by side, as steps of their channels.
ENGINE_INLINE void copy_pixels(const Stored* from, std::int64_t pixels, std::int64_t channels,
                               float* to) {
#if defined(ENGINE_BF16_PAIRS)
  if (channels % 2 == 0) return pair_neighbours(from, pixels * channels, to);
  if (channels == 1) return pair_rows(from, nullptr, pixels, to);
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel)
    pair_neighbours(from + pixel * channels, channels, to + pixel * steps_of(channels));
#else
  copy_steps(from, pixels * channels, to);
#endif
}

// Floats that will be read soon, fetched into L2 a share at a time while tiles compute: the
// hardware does not guess across pages and from row to row.
struct Ahead {
  const float* data = nullptr;
  const std::int64_t* row = nullptr;  // where the rows begin; nullptr: one, at `data`
  std::int64_t rows = 0, floats = 0;  // of a row

  // Part `i` of `pieces`.
  ENGINE_INLINE void fetch(std::int64_t i, std::int64_t pieces) const {
    const std::int64_t lines = (floats + 15) / 16, all = rows * lines;
    std::int64_t at = all * i / pieces;
    const std::int64_t last = all * (i + 1) / pieces;
    if (at == last) return;
    for (std::int64_t r = at / lines, line = at % lines; at < last; ++r, line = 0) {
      const float* from = row == nullptr ? data : data + row[r];
      for (; line < lines && at < last; ++line, ++at) __builtin_prefetch(from + line * 16, 0, 2);
    }
  }
};

// Images [h, w, terms], of which pixels have `channels` steps or, in pairs of images, floats; read
// through a rim of zeros. Without a rim they are read where they lie.
struct Maps {
  const Stored* data;
  std::int64_t h, w, channels, terms;
  std::int64_t top, left, bottom, right;

  ENGINE_INLINE bool in_place() const {
    const bool as_they_lie = !kPairs || (kHalves && channels * kTerms == terms);
    return as_they_lie && (top | left | bottom | right) == 0;
  }
  ENGINE_INLINE std::int64_t pitch() const { return (left + w + right) * channels; }
  ENGINE_INLINE std::int64_t padded_floats() const { return (top + h + bottom) * pitch(); }
  // Floats of a buffer for `images` of them.
  ENGINE_INLINE std::int64_t buffer_floats(std::int64_t images) const {
    return in_place() ? 0 : round_up_16(images * padded_floats());
  }

  // To be called once per buffer: the rims stay zero ever after.
  ENGINE_INLINE void clear(float* buffer, std::int64_t images) const {
    __builtin_memset(buffer, 0, static_cast<unsigned long>(buffer_floats(images)) * sizeof(float));
  }

  // The first pixel of image `image` of the buffer.
  ENGINE_INLINE float* start(float* buffer, std::int64_t image) const {
    return buffer + image * padded_floats() + top * pitch() + left * channels;
  }

  // Images [first, first + count), padded_floats() apart; in `buffer` unless they are in place.
  const float* padded(std::int64_t first, std::int64_t count, float* buffer) const {
    const Stored* from = data + first * h * w * terms;
    if (in_place()) return reinterpret_cast<const float*>(from);
    for (std::int64_t image = 0; image < count; ++image) {
      float* to = start(buffer, image);
      for (std::int64_t y = 0; y < h; ++y, from += w * terms)
        copy_pixels(from, w, terms, to + y * pitch());
    }
    return buffer;
  }

  // Part `i` of `pieces` of what padded() will read for images [first, first + count) where they
  // are not in place.
  ENGINE_INLINE Ahead unpadded(std::int64_t first, std::int64_t count, std::int64_t i,
                               std::int64_t pieces) const {
    constexpr std::int64_t kOfFloat = sizeof(float) / sizeof(Stored);
    const std::int64_t floats = count * h * w * terms / kOfFloat, start = floats * i / pieces;
    const auto* from = reinterpret_cast<const float*>(data + first * h * w * terms);
    return {from + start, nullptr, 1, floats * (i + 1) / pieces - start};
  }

  // Steps of neighboring images, [first, first + count) of them, of `images` images; where those
  // are odd, the last one is alone.
  const float* padded_images(std::int64_t first, std::int64_t count,
                             [[maybe_unused]] std::int64_t images, float* buffer) const {
#if defined(ENGINE_BF16_PAIRS)
    for (std::int64_t pair = 0; pair < count; ++pair) {
      const std::int64_t image = 2 * (first + pair);
      const Stored* from = data + image * h * w * terms;
      const Stored* second = image + 1 < images ? from + h * w * terms : nullptr;
      float* to = start(buffer, pair);
      for (std::int64_t y = 0; y < h; ++y)
        pair_rows(from + y * w * terms, second == nullptr ? nullptr : second + y * w * terms,
                  w * terms, to + y * pitch());
    }
    return buffer;
#else
    return padded(first, count, buffer);
#endif
  }
};

// How many images of `places` places each make a group, at most n.
ENGINE_INLINE std::int64_t group_images(std::int64_t places, std::int64_t n) {
  return places == 0 ? 1 : larger(1, smaller(kPlaceBlock / places, n));
}

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
