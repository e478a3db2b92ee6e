// Selects the convolutions that use Winograd's method (winograd_cpu.h): those for which a cost
// model predicts a gain. The choice depends only on the shape, never on timings, so that ranks and
// runs agree.
#pragma once

#include "engine/ops/conv2d/conv2d_operands.h"

namespace engine::ops {

// The batch size that forward's choice assumes for any actual batch: an evaluation must give the
// same bits for any number of ranks, and so for any batch size.
inline constexpr std::int64_t kForwardBatch = 8;

// Costs are in multiply-adds, or in lanes of other work with the same duration. A tile costs 36 per
// pair of channels, where the direct kernels take 9 or 25 per output; about 180 to transform a
// channel of a tile, and at most 300 to transform the weights of a pair or their gradient, most of
// it waiting for memory. The last factor is for products of few channels and few tiles, which are
// slower per operation than the direct kernels. In bf16 the direct kernels are twice as fast;
// Winograd's method, which stays in f32, was equally fast at 64 channels of 3 x 3 and faster at
// 512.
inline bool suits_winograd(const Conv2dGeometry& g, std::int64_t n, bool bf16 = false) {
  const std::int64_t fewest_channels = bf16 ? 64 : 16;
  if (g.kernel_h != g.kernel_w || (g.kernel_h != 3 && g.kernel_h != 5)) return false;
  if (bf16 && g.kernel_h == 5) return false;
  if (g.stride != 1 || g.padding >= g.kernel_h) return false;
  if (g.in_channels < fewest_channels || g.out_channels < fewest_channels) return false;
  const std::int64_t products = g.in_channels * g.out_channels;
  const std::int64_t taps = g.kernel_h * g.kernel_w, side = 7 - g.kernel_h;  // side of a tile
  const std::int64_t tiles = n * ((g.out_h() + side - 1) / side) * ((g.out_w() + side - 1) / side);
  const std::int64_t direct = n * g.out_h() * g.out_w() * taps * products;
  const std::int64_t winograd =
      tiles * (36 * products + 180 * (g.in_channels + g.out_channels)) + 300 * products;
  return 7 * winograd < 5 * direct;
}

// The gradient of the weights gains less, since its products are short in both directions: 3 x 3
// with few channels gains nothing (14x14, 16 -> 32: equal to 7 % slower with AVX-512).
inline bool weights_suit_winograd(const Conv2dGeometry& g, std::int64_t n, bool bf16 = false) {
  const std::int64_t fewest_channels = g.kernel_h == 3 ? 32 : 16;
  return g.in_channels >= fewest_channels && g.out_channels >= fewest_channels &&
         suits_winograd(g, n, bf16);
}

}  // namespace engine::ops
