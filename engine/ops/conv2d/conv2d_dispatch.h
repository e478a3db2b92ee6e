// From storage, Products and the size of a result to the arithmetic and the tile of a convolution
// kernel; and what the host tells a kernel about the geometry.
#pragma once

#include <algorithm>
#include <limits>

#include "engine/core/tensor_view.h"
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/conv2d/conv2d_plan.h"
#include "engine/ops/conv2d/conv2d_simt.h"
#include "engine/ops/conv2d/conv2d_tensor.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {

// Throws Error for pixels that 31 bits cannot number, and for coordinates beyond 15 bits.
inline void require_countable(const Conv2dGeometry& g, std::int64_t n) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max(), kMostAcross = 32000;
  require(n * (g.in_h + 1) * (g.in_w + 1) <= kMost && n * g.out_h() * g.out_w() <= kMost &&
              g.kernel_h * g.kernel_w * std::max(g.in_channels, g.out_channels) <= kMost,
          "a convolution on a CUDA device has fewer than 2^31 pixels in a batch");
  require(
      std::max({g.in_h, g.in_w, g.out_h(), g.out_w()}) + 2 * g.padding <= kMostAcross,
      "a convolution on a CUDA device has images of up to 32000 x 32000 pixels, padding included");
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

// Calls call(Math*) with tensor cores and this tile. Result: what results are stored as.
template <class Factors, class Result, Lines kLinesA, Lines kLinesB, class Call>
void with_tensor_tile(TileChoice choice, Call call) {
  if (choice == TileChoice::kLarge) {
    return call(static_cast<
                TensorProduct<Factors, Result, Tile<128, 128, 256, 2>, 2, 4, kLinesA, kLinesB>*>(
        nullptr));
  }
  if (choice == TileChoice::kTall) {
    return call(
        static_cast<TensorProduct<Factors, Result, Tile<128, 64, 128, 3>, 2, 2, kLinesA, kLinesB>*>(
            nullptr));
  }
  call(static_cast<TensorProduct<Factors, Result, Tile<64, 64, 128, 4>, 2, 2, kLinesA, kLinesB>*>(
      nullptr));
}

// Calls call(S{}, Math*): S for this dtype, Math for these products and this tile. Result: what
// results are stored as, void: as S.
template <class Result, Lines kLinesA, Lines kLinesB, class Call>
void with_product(DType dtype, Products products, TileChoice choice, Call call) {
  const auto tensor = [&]<class Factors>(Factors) {
    using S = typename Factors::Storage;
    using Stored = std::conditional_t<std::is_void_v<Result>, S, Result>;
    with_tensor_tile<Factors, Stored, kLinesA, kLinesB>(
        choice, [&]<class Math>(Math* math) { call(S{}, math); });
  };
  if (dtype == DType::kBF16) return tensor(HalfFactors<bf16>{});
  if (dtype == DType::kF16) return tensor(HalfFactors<f16>{});
  require(dtype == DType::kF32, "activations on a CUDA device are f32, bf16 or f16");
  if (products == Products::kTf32) return tensor(Tf32Factors{});
  if (products == Products::kBF16) return tensor(RoundedFactors<bf16>{});
  if (products == Products::kF16) return tensor(RoundedFactors<f16>{});
  if (choice == TileChoice::kLarge) {
    return call(float{},
                static_cast<SimtProduct<Tile<128, 128, 256, 2>, kLinesA, kLinesB>*>(nullptr));
  }
  call(float{}, static_cast<SimtProduct<Tile<64, 64, 256, 3>, kLinesA, kLinesB>*>(nullptr));
}

}  // namespace engine::ops::cuda
