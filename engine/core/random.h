// Counter-based random numbers: the value depends only on (key, counter), so any thread or rank can
// draw any element in any order with the same result. A generator with state, such as mt19937,
// would have to be advanced in a fixed order: dropout would then depend on the number of threads
// and ranks, and checkpoints would have to store its state. Method: Philox4x32-10, Salmon et al.,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace engine {

// Ten rounds of Philox. `key` is the stream, (`counter_high`, `counter_low`) the position in it.
std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_high,
                                    std::uint64_t counter_low);

// Converts one word to a float, uniform in [0, 1) with 24 bits.
constexpr float uniform_float(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

// Mixes a seed with a name (of a parameter or a layer) into the key of a separate stream.
std::uint64_t stream_key(std::uint64_t seed, std::string_view name);

}  // namespace engine
