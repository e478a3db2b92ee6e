// Scales images with antialiasing: the filter is at least as wide as a pixel of the result.
#pragma once

#include <cstdint>
#include <span>

#include "io/data/images/image_decoder.h"

namespace io {

struct PixelBox {
  std::int64_t left = 0, top = 0, width = 0, height = 0;
};

// Scales the part `box` of the image to width x height and writes the part `window` of the result:
// window.height * window.width * 3 bytes. Bilinear: a triangle that reaches max(1, scale) pixels of
// the source to each side, separately over columns and rows, rounded to bytes after each, as in
// Pillow 13 and torchvision's Resize. REQUIRES: `box` is inside the image, `window` inside width x
// height, and none is empty.
void resample(const DecodedImage& image, const PixelBox& box, std::int64_t width,
              std::int64_t height, const PixelBox& window, std::span<std::uint8_t> out);

// Applies torchvision's Resize(size) and CenterCrop(size): scales the shorter side to `size`, and
// keeps the middle of the longer one.
void resize_and_crop(const DecodedImage& image, std::int64_t size, std::span<std::uint8_t> out);

}  // namespace io
