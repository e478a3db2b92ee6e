// A small seeded generator for sample orders and built-in data, with the same numbers on every
// machine and compiler. Method: SplitMix64; Steele, Lea, Flood, "Fast splittable pseudorandom
// number generators", OOPSLA 2014.
#pragma once

#include <cstdint>

namespace io {

// The output function: a bijection of 64 bits that decorrelates similar inputs.
constexpr std::uint64_t mix_bits(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

class SplitMix {
 public:
  static constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15;  // between two states
  // One independent stream for each (seed, stream, index).
  constexpr SplitMix(std::uint64_t seed, std::uint64_t stream, std::uint64_t index = 0)
      : state_(mix_bits(mix_bits(mix_bits(seed + kStep) + stream + kStep) + index + kStep)) {}

  constexpr std::uint64_t next() { return mix_bits(state_ += kStep); }

  // Uniform in [0, bound), without bias. REQUIRES: bound > 0.
  // Method: multiply and reject; Lemire, "Fast random integer generation in an interval", TOMACS
  // 29(1), 2019.
  constexpr std::uint32_t below(std::uint32_t bound) {
    std::uint64_t product = (next() >> 32) * bound;
    if (static_cast<std::uint32_t>(product) < bound) {
      const std::uint32_t threshold = -bound % bound;  // 2^32 mod bound
      while (static_cast<std::uint32_t>(product) < threshold) product = (next() >> 32) * bound;
    }
    return static_cast<std::uint32_t>(product >> 32);
  }

 private:
  std::uint64_t state_;
};

}  // namespace io
