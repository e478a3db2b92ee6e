// Philox4x32-10 on a CUDA device: the words of engine/core/random.h. Included by .cu files only.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include "engine/ops/device/device_code.h"

namespace engine::ops::cuda {

struct PhiloxWords {
  std::uint32_t at[4];

  // Returns at[i % 4] without indexed access to registers.
  __device__ __forceinline__ std::uint32_t chosen(std::int64_t i) const {
    const std::uint32_t low = i % 2 == 0 ? at[0] : at[1], high = i % 2 == 0 ? at[2] : at[3];
    return i % 4 < 2 ? low : high;
  }
};

__device__ __forceinline__ PhiloxWords philox_words(std::uint64_t key, std::uint64_t high,
                                                    std::uint64_t low) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  std::uint32_t c0 = static_cast<std::uint32_t>(low), c1 = static_cast<std::uint32_t>(low >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(high), c3 = static_cast<std::uint32_t>(high >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const std::uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace engine::ops::cuda
