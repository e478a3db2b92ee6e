// Images as bytes become the numbers that a model reads: shifted, mirrored, normalized, with a
// hole. On a CUDA device only; in host memory whoever loads the images does it.
//
// Bound: bytes (one read, two or four written). Both ways give the same bits, since both look the
// numbers up in one table.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// What was drawn for one image of [h, w]. Where nothing was: all zeros.
struct ImageDraw {
  std::int32_t shift_y = 0, shift_x = 0;  // output pixel (y, x) is input pixel (y + shift_y, x +
                                          // shift_x), before mirroring
  std::int32_t mirrored = 0;              // 1: left and right exchanged
  std::int32_t hole_top = 0, hole_left = 0, hole_bottom = 0,
               hole_right = 0;  // of the output: [top, bottom) x [left, right)
  bool operator==(const ImageDraw&) const = default;
};

// Numbers of the table for each channel: the values of bytes 0 to 255, then the value inside a
// hole.
inline constexpr std::int64_t kImageTableRow = 257;

// out [n, h, w, c] (f32, bf16 or f16, rounded to nearest) = table [c, 257] (f32) at the bytes of
// images [n, h, w, c] (u8), at the places that draws[n] says. Outside of an image there are zero
// bytes. All in device memory. Throws Error on the CPU.
struct PrepareImages {
  TensorView images;
  const ImageDraw* draws;  // [n]
  TensorView table, out;
};
void prepare_images(KernelContext& context, const PrepareImages& o);

}  // namespace engine::ops
