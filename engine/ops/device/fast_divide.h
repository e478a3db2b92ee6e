// Division by a number that is known on the host, as a multiplication, for dividends in [0, 2^31).
// The multiplier is 2^(31 + s) / d rounded up, s = ceil(log2 d); its error is too small to change a
// 31-bit quotient (Granlund and Montgomery, "Division by invariant integers using multiplication",
// 1994).
#pragma once

#include <cstdint>

#include "io/base/numbers/half.h"

namespace engine::ops::cuda {

struct FastDivide {
  std::uint32_t multiplier = 1u << 31;
  int shift = 0;

  FastDivide() = default;
  // REQUIRES: 0 < divisor < 2^31.
  explicit FastDivide(std::int64_t divisor) {
    while ((std::int64_t{1} << shift) < divisor) ++shift;
    multiplier = static_cast<std::uint32_t>(
        ((std::uint64_t{1} << (31 + shift)) + static_cast<std::uint64_t>(divisor) - 1) /
        static_cast<std::uint64_t>(divisor));
  }

  BASE_HOST_DEVICE int quotient(int value) const {
    const std::uint32_t twice = static_cast<std::uint32_t>(value) << 1;
#if defined(__CUDA_ARCH__)
    return static_cast<int>(__umulhi(twice, multiplier) >> shift);
#else
    return static_cast<int>(static_cast<std::uint32_t>((std::uint64_t{twice} * multiplier) >> 32) >>
                            shift);
#endif
  }
};

}  // namespace engine::ops::cuda
