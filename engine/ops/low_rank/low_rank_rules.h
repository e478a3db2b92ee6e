// Defines rules of PowerSGD's factors, for the CPU and for kernels.
#pragma once

#include <cstdint>

#include "io/base/numbers/half.h"

namespace engine::ops {

// Returns true if a column, whose norm was `before` and is `norm` after orthogonalization, counts
// as a combination of the columns before.
template <class T>
BASE_HOST_DEVICE bool low_rank_spanned(double norm, double before) {
  return norm <= before * (sizeof(T) == 4 ? 1e-6 : 1e-14);
}

// Returns what an error keeps of a value: 0 if it is not finite, which a later step cannot repair.
template <class T>
BASE_HOST_DEVICE T low_rank_kept(T value) {
  return value - value == T(0) ? value : T(0);
}

// Returns an approximately normal number, the sum of four uniform ones. It calls no function of the
// math library, because its last bit may differ between processors. `words`: of philox().
template <class Words>
BASE_HOST_DEVICE float low_rank_draw(const Words& words) {
  float sum = -2;
  for (int i = 0; i < 4; ++i) sum += static_cast<float>(words[i] >> 8) * 0x1p-24F;
  return sum;
}

}  // namespace engine::ops
