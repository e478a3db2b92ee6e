// Selects the largest elements of each block and packs them. Methods: Sarfi, Thérien, Lidin and
// Belilovsky, "SparseLoCo", 2025 (top-k within chunks of 4096, packed indices, 2 bits for a value);
// Lin et al., "Deep gradient compression", 2017.
#include <array>
#include <cmath>
#include <limits>

#include "engine/averaging/codes/lossy_code.h"

namespace engine {
namespace {

class BitWriter {
 public:
  explicit BitWriter(std::byte* to) : to_(to) {}
  void put(std::uint32_t value, int bits) {
    pending_ |= static_cast<std::uint64_t>(value) << held_;
    for (held_ += bits; held_ >= 8; held_ -= 8, pending_ >>= 8)
      *to_++ = static_cast<std::byte>(pending_ & 255);
  }
  void finish() {
    if (held_ > 0) *to_ = static_cast<std::byte>(pending_ & 255);
  }

 private:
  std::byte* to_;
  std::uint64_t pending_ = 0;
  int held_ = 0;
};

class BitReader {
 public:
  explicit BitReader(const std::byte* from) : from_(from) {}
  std::uint32_t get(int bits) {
    for (; held_ < bits; held_ += 8) pending_ |= static_cast<std::uint64_t>(*from_++) << held_;
    const auto value = static_cast<std::uint32_t>(pending_ & ((1U << bits) - 1));
    pending_ >>= bits;
    held_ -= bits;
    return value;
  }

 private:
  const std::byte* from_;
  std::uint64_t pending_ = 0;
  int held_ = 0;
};

// Evenly spaced magnitudes.
struct Levels {
  double base = 0, step = 0;
  int count = 2;

  int nearest(double magnitude) const {
    if (!(step > 0)) return 0;
    return static_cast<int>(std::clamp(std::round((magnitude - base) / step), 0.0, count - 1.0));
  }
};

// The magnitude for the selection: NaN is the largest, so that it is sent and detected.
template <class T>
T selection_size(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::infinity() : std::abs(value);
}

// The elements of one block that are sent, with ascending indices.
template <class T>
struct Selection {
  std::array<std::uint16_t, SparseCode::kBlock> index;
  std::size_t count = 0;

  // Among equal elements at the limit, the first ones are chosen.
  Selection(std::span<const T> block, std::size_t kept) {
    std::array<T, SparseCode::kBlock> sizes;
    const auto end = sizes.begin() + static_cast<std::ptrdiff_t>(block.size());
    std::transform(block.begin(), block.end(), sizes.begin(), selection_size<T>);
    const auto limit = end - static_cast<std::ptrdiff_t>(kept);
    std::nth_element(sizes.begin(), limit, end);
    const T least = *limit;
    auto at_limit = std::count(limit, end, least);
    for (std::size_t i = 0; i < block.size() && count < kept; ++i) {
      const T size = selection_size(block[i]);
      if (size < least || (size == least && at_limit-- <= 0)) continue;
      index[count++] = static_cast<std::uint16_t>(i);
    }
  }
};

// Spaces the levels from the smallest to the largest magnitude, then fits them to the elements of
// each level by least squares. With two levels, they become the means of the smaller and of the
// larger elements.
template <class T>
Levels levels_for(std::span<const T> block, const Selection<T>& chosen, int count) {
  const auto size = [&](std::size_t k) {
    return static_cast<double>(std::abs(block[chosen.index[k]]));
  };
  double low = std::numeric_limits<double>::infinity(), high = 0, check = 0;
  for (std::size_t k = 0; k < chosen.count; ++k) {
    low = std::min(low, size(k));
    high = std::max(high, size(k));
    check += size(k) * 0;  // NaN if it is not finite
  }
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (check != 0 || high > static_cast<double>(std::numeric_limits<float>::max()))
    return {.base = kNan, .step = kNan, .count = count};
  const Levels spaced{.base = low, .step = (high - low) / (count - 1), .count = count};
  double n = 0, sum = 0, level_sum = 0, squares = 0, products = 0;
  for (std::size_t k = 0; k < chosen.count; ++k) {
    const double level = spaced.nearest(size(k));
    n += 1;
    sum += size(k);
    level_sum += level;
    squares += level * level;
    products += level * size(k);
  }
  const double determinant = n * squares - level_sum * level_sum;
  // Zeros stay zeros, above all those between two parameters, whose errors no checkpoint has.
  if (low == 0) return {.base = 0, .step = squares > 0 ? products / squares : 0, .count = count};
  const double step = determinant > 0 ? (n * products - level_sum * sum) / determinant : 0;
  return {.base = (sum - step * level_sum) / n, .step = std::max(0.0, step), .count = count};
}

}  // namespace

template <class T>
void SparseCode::encode(std::span<const T> block, const RoundingNoise& /*noise*/,
                        std::int64_t /*first*/, std::byte* to) const {
  const Selection<T> chosen(
      block, static_cast<std::size_t>(kept_of(static_cast<std::int64_t>(block.size()))));
  Levels levels = levels_for(block, chosen, 1 << (bits_ - 1));
  const base::bf16 scales[] = {base::from_float<base::bf16>(static_cast<float>(levels.base)),
                               base::from_float<base::bf16>(static_cast<float>(levels.step))};
  std::memcpy(to, scales, sizeof scales);
  levels.base = static_cast<double>(base::to_float(scales[0]));
  levels.step = static_cast<double>(base::to_float(scales[1]));
  BitWriter writer(to + sizeof scales);
  for (std::size_t k = 0; k < chosen.count; ++k) {
    const T value = block[chosen.index[k]];
    writer.put(chosen.index[k], kIndexBits);
    const int sign = std::signbit(value) ? 1 << (bits_ - 1) : 0;
    writer.put(
        static_cast<std::uint32_t>(sign | levels.nearest(std::abs(static_cast<double>(value)))),
        bits_);
  }
  writer.finish();
}

template <class T>
void SparseCode::add(const std::byte* from, T factor, std::span<T> to) const {
  base::bf16 scales[2];
  std::memcpy(scales, from, sizeof scales);
  const T lowest = static_cast<T>(base::to_float(scales[0])),
          step = static_cast<T>(base::to_float(scales[1]));
  BitReader reader(from + sizeof scales);
  const std::int64_t kept = kept_of(static_cast<std::int64_t>(to.size()));
  const std::uint32_t sign_bit = 1U << (bits_ - 1);
  for (std::int64_t k = 0; k < kept; ++k) {
    const std::uint32_t index = reader.get(kIndexBits), code = reader.get(bits_);
    const T size = lowest + step * static_cast<T>(code & (sign_bit - 1));
    to[index] += (code & sign_bit) != 0 ? -factor * size : factor * size;
  }
}

void SparseCode::check(const std::byte* from, std::int64_t count) const {
  BitReader reader(from + 2 * sizeof(base::bf16));
  for (std::int64_t k = 0; k < kept_of(count); ++k) {
    const auto index = static_cast<std::int64_t>(reader.get(kIndexBits));
    require(index < count, "an index of a sparse sum is outside its block");
    reader.get(bits_);
  }
}

template <class T>
void SparseCode::clear_sent(const std::byte* from, std::span<T> to) const {
  BitReader reader(from + 2 * sizeof(base::bf16));
  const std::int64_t kept = kept_of(static_cast<std::int64_t>(to.size()));
  for (std::int64_t k = 0; k < kept; ++k) {
    to[reader.get(kIndexBits)] = 0;
    reader.get(bits_);
  }
}

template void SparseCode::encode(std::span<const float>, const RoundingNoise&, std::int64_t,
                                 std::byte*) const;
template void SparseCode::encode(std::span<const double>, const RoundingNoise&, std::int64_t,
                                 std::byte*) const;
template void SparseCode::add(const std::byte*, float, std::span<float>) const;
template void SparseCode::add(const std::byte*, double, std::span<double>) const;
template void SparseCode::clear_sent(const std::byte*, std::span<float>) const;
template void SparseCode::clear_sent(const std::byte*, std::span<double>) const;

}  // namespace engine
