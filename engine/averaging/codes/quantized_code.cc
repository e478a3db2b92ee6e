// Quantizes blocks by stochastic rounding. Methods: Alistarh et al., "QSGD", 2017 (stochastic
// rounding with a norm for each block); Dettmers, "8-bit approximations", 2016.
#include <cmath>
#include <limits>

#include "engine/averaging/codes/lossy_code.h"

namespace engine {
namespace {

// NaN counts as infinite: a comparison would ignore it.
template <class T>
double largest_magnitude(std::span<const T> block) {
  T largest = 0, sum = 0;
  for (const T value : block) {
    largest = std::max(largest, std::abs(value));
    sum += value * T(0);  // NaN if the value is not finite
  }
  return sum == 0 ? static_cast<double>(largest) : std::numeric_limits<double>::infinity();
}

}  // namespace

template <class T>
void QuantizedCode::encode(std::span<const T> block, const RoundingNoise& noise, std::int64_t first,
                           std::byte* to) const {
  const int levels = ops::quantized_levels(bits_);
  const base::bf16 scale = ops::quantized_scale(largest_magnitude(block), levels);
  std::memcpy(to, &scale, sizeof scale);
  to += sizeof scale;
  const float unit = base::to_float(scale);
  const auto count = static_cast<std::int64_t>(block.size());
  if (!(unit > 0)) {  // zeros, or NaN: the integers do not matter
    std::memset(to, 0, block_bytes(count) - sizeof scale);
    return;
  }
  const T inverse = T(1) / static_cast<T>(unit);
  const auto at = [&](std::int64_t i) {
    return ops::quantized_level(block[static_cast<std::size_t>(i)], inverse, levels,
                                noise.at(first + i));
  };
  if (bits_ == 8) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<std::byte>(at(i));
    return;
  }
  for (std::int64_t i = 0; i < count; i += 2) {
    const int low = at(i) & 15, high = i + 1 < count ? at(i + 1) & 15 : 0;
    to[i / 2] = static_cast<std::byte>(low | high << 4);
  }
}

template <class T>
void QuantizedCode::add(const std::byte* from, T factor, std::span<T> to) const {
  base::bf16 scale;
  std::memcpy(&scale, from, sizeof scale);
  from += sizeof scale;
  const T unit = factor * static_cast<T>(base::to_float(scale));
  if (bits_ == 8) {
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] += unit * static_cast<T>(static_cast<std::int8_t>(from[i]));
    return;
  }
  for (std::size_t i = 0; i < to.size(); ++i) {
    const int level = ops::signed_half(static_cast<int>(from[i / 2]) >> (i % 2 == 0 ? 0 : 4));
    to[i] += unit * static_cast<T>(level);
  }
}

template void QuantizedCode::encode(std::span<const float>, const RoundingNoise&, std::int64_t,
                                    std::byte*) const;
template void QuantizedCode::encode(std::span<const double>, const RoundingNoise&, std::int64_t,
                                    std::byte*) const;
template void QuantizedCode::add(const std::byte*, float, std::span<float>) const;
template void QuantizedCode::add(const std::byte*, double, std::span<double>) const;

}  // namespace engine
