// From storage, Products and the size of a result to the arithmetic and the tile of a convolution kernel; and what the host tells
// a kernel about the geometry.
#pragma once

#include <algorithm>
#include <limits>

#include "engine/core/tensor_view.h"
#include "engine/kernels/conv2d.h"
#include "engine/kernels/cuda/conv2d_simt.h"
#include "engine/kernels/cuda/storage_dispatch.h"

namespace engine::kernels::cuda {

// Throws Error for pixels that 31 bits cannot number.
inline void require_countable(const Conv2dGeometry& g, std::int64_t n) {
  const std::int64_t most = std::numeric_limits<std::int32_t>::max();
  require(n * (g.in_h + 1) * (g.in_w + 1) <= most && n * g.out_h() * g.out_w() <= most &&
              g.kernel_h * g.kernel_w * std::max(g.in_channels, g.out_channels) <= most,
          "a convolution on a CUDA device has fewer than 2^31 pixels in a batch");
}

// Places are output pixels, the map is x.
inline Window forward_window(const Conv2dGeometry& g, std::int64_t n) {
  require_countable(g, n);
  Window window;
  window.map_h = static_cast<int>(g.in_h), window.map_w = static_cast<int>(g.in_w);
  window.stride = static_cast<int>(g.stride);
  window.first_y = window.first_x = -static_cast<int>(g.padding);
  window.set_places(n, g.out_h(), g.out_w());
  window.set_taps(g.kernel_h, g.kernel_w, g.in_channels);
  return window;
}

// Calls call(S{}, Math*) with the types for this dtype, these products and this result.
template <Lines kLinesA, Lines kLinesB, class Call>
void with_product(DType dtype, Products products, std::int64_t rows, std::int64_t columns, Call call) {
  (void)products, (void)rows, (void)columns;
  require(dtype == DType::kF32, "f32 only");
  call(float{}, static_cast<SimtProduct<Tile<64, 64, 256>, kLinesA, kLinesB>*>(nullptr));
}

}  // namespace engine::kernels::cuda
