// The images as convolution kernels read them: maps with a border of zeros, so that the loops over
// taps need no bounds checks, processed in groups of whole images. In bf16 (gemm_tiles.h) maps are
// rounded and paired when they are copied to a buffer, with or without a border; maps stored in
// bf16 are only copied. Only for sources compiled once per instruction set.
#pragma once

#include "engine/ops/gemm/gemm_tiles.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

// The number of places (pixels of a result) that are processed together: enough to amortize loading
// a panel of weights into L1, few enough that their inputs stay in L2. Small maps are grouped to
// this size, large ones are divided into blocks of it.
inline constexpr std::int64_t kPlaceBlock = 256;

ENGINE_INLINE std::int64_t round_up_16(std::int64_t floats) { return (floats + 15) / 16 * 16; }

// Copies `pixels` adjacent pixels as steps of their channels.
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

// Floats that will be read soon. Tiles prefetch them into L2 part by part while they compute: the
// hardware prefetcher does not cross pages or jump between rows.
struct Ahead {
  const float* data = nullptr;
  const std::int64_t* row = nullptr;  // the start of each row; nullptr: one row, at `data`
  std::int64_t rows = 0, floats = 0;  // floats per row

  // Prefetches part `i` of `pieces`.
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

// Images [h, w, terms] whose pixels have `channels` steps or, for pairs of images, floats; they are
// read with a border of zeros. Without a border they are read in place.
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
  // The size of a buffer for `images` images, in floats.
  ENGINE_INLINE std::int64_t buffer_floats(std::int64_t images) const {
    return in_place() ? 0 : round_up_16(images * padded_floats());
  }

  // Called once per buffer: the borders stay zero.
  ENGINE_INLINE void clear(float* buffer, std::int64_t images) const {
    __builtin_memset(buffer, 0, static_cast<unsigned long>(buffer_floats(images)) * sizeof(float));
  }

  // Returns the first pixel of image `image` of the buffer.
  ENGINE_INLINE float* start(float* buffer, std::int64_t image) const {
    return buffer + image * padded_floats() + top * pitch() + left * channels;
  }

  // Returns images [first, first + count), padded_floats() apart; in `buffer` unless they are in
  // place.
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

  // Returns part `i` of `pieces` of the data that padded() will read for images [first, first +
  // count) if they are not in place.
  ENGINE_INLINE Ahead unpadded(std::int64_t first, std::int64_t count, std::int64_t i,
                               std::int64_t pieces) const {
    constexpr std::int64_t kOfFloat = sizeof(float) / sizeof(Stored);
    const std::int64_t floats = count * h * w * terms / kOfFloat, start = floats * i / pieces;
    const auto* from = reinterpret_cast<const float*>(data + first * h * w * terms);
    return {from + start, nullptr, 1, floats * (i + 1) / pieces - start};
  }

  // Returns steps of pairs of adjacent images: pairs [first, first + count) of `images` images; if
  // the number of images is odd, the last one is alone.
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

// Returns the number of images of `places` places each that form a group, at most n.
ENGINE_INLINE std::int64_t group_images(std::int64_t places, std::int64_t n) {
  return places == 0 ? 1 : larger(1, smaller(kPlaceBlock / places, n));
}

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
