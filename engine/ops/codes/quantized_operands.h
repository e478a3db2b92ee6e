// Operands of sums of quantized codes on a CUDA device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/ops/codes/quantized_block.h"

namespace engine::ops {

// Selects the numbers of RoundingNoise. The round is read from device memory if `round_at` is not
// null, so that a captured step has new numbers in each launch.
struct NoiseSource {
  std::uint64_t stream = 0;
  int rank = 0;
  std::int64_t round = 0;
  const std::int64_t* round_at = nullptr;
};

// Common to all calls: the code, and the position of the span's first element in the whole buffer.
struct QuantizedSpan {
  int bits = 8;  // or 4
  std::int64_t position = 0;
  NoiseSource noise;
};

// The codes of a span by several ranks, `stride` bytes apart.
struct RankCodes {
  const std::byte* first;
  std::size_t stride;
  int ranks;
};
}  // namespace engine::ops
