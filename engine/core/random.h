// Counter-based random numbers: the value depends on (key, counter) alone, so any thread or rank
// can draw any element in any order and all agree. A generator with a state, such as mt19937, would
// have to be advanced in a fixed order: dropout would then depend on the number of threads and
// ranks, and its state would have to be saved in checkpoints. Method: Philox4x32-10, Salmon et al.,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace engine {

// Ten rounds of Philox. `key` is the stream, (`counter_high`, `counter_low`) the place in it.
std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_high,
                                    std::uint64_t counter_low);

// Uniform in [0, 1) with 24 bits, from one word.
constexpr float uniform_float(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

// Mixes a seed with a name (a parameter's, a layer's) into the key of an own stream.
std::uint64_t stream_key(std::uint64_t seed, std::string_view name);

}  // namespace engine
