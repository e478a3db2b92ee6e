// Defines the order of sums over many elements that the CPU and kernels share.
#pragma once

namespace engine::ops {

// A sum has this many partial ones: element i belongs to partial sum i % kSumLanes, in order of i.
// These are added by lane_total(), or as block_sum() does on a device.
inline constexpr int kSumLanes = 256;

// Replaces the partial sums, in the order of a warp's and a block's sum.
inline double lane_total(double (&lanes)[kSumLanes]) {
  constexpr int kWarp = 32;
  double total = 0;
  for (double* warp = lanes; warp != lanes + kSumLanes; warp += kWarp) {
    for (int half = kWarp / 2; half > 0; half /= 2)
      for (int lane = 0; lane < half; ++lane) warp[lane] += warp[lane + half];
    total += *warp;
  }
  return total;
}

}  // namespace engine::ops
