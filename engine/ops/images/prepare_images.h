// Converts images from bytes to the values that a model reads: shifted, mirrored, normalized, with
// a hole. For CUDA devices only; in host memory the loader of the images does this.
//
// Bound by bytes (one read, two or four written). Both give the same bits, since both look the
// values up in one table.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// The random draw for one image of [h, w]. All zeros if nothing was drawn.
struct ImageDraw {
  std::int32_t shift_y = 0, shift_x = 0;  // output pixel (y, x) is input pixel (y + shift_y, x +
                                          // shift_x), before mirroring
  std::int32_t mirrored = 0;              // 1: left and right exchanged
  std::int32_t hole_top = 0, hole_left = 0, hole_bottom = 0,
               hole_right = 0;  // in the output: [top, bottom) x [left, right)
  bool operator==(const ImageDraw&) const = default;
};

// The number of table entries per channel: the values of bytes 0 to 255, then the value inside a
// hole.
inline constexpr std::int64_t kImageTableRow = 257;

// out [n, h, w, c] (f32, bf16 or f16, rounded to nearest) = table [c, 257] (f32) at the bytes of
// images [n, h, w, c] (u8), at the positions given by draws[n]. Bytes outside of an image are zero.
// All operands are in device memory. Throws Error on the CPU.
struct PrepareImages {
  TensorView images;
  const ImageDraw* draws;  // [n]
  TensorView table, out;
};
void prepare_images(KernelContext& context, const PrepareImages& o);

}  // namespace engine::ops
