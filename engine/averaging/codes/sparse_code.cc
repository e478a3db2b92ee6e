// Selects the largest elements of each block and packs them. Methods: Sarfi, Thérien, Lidin and
// Belilovsky, "SparseLoCo", 2025 (top-k within chunks of 4096, packed indices, 2 bits for a value);
// Lin et al., "Deep gradient compression", 2017.
#include <array>
#include <cmath>
#include <limits>

#include "engine/averaging/codes/lossy_code.h"

namespace engine {
namespace {

constexpr std::size_t kScaleBytes = 2 * sizeof(base::bf16);

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

template <class T>
ops::SparseScales scales_for(std::span<const T> block, const Selection<T>& chosen, int count) {
  const auto size = [&](std::size_t k) {
    return static_cast<double>(std::abs(block[chosen.index[k]]));
  };
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (std::size_t k = 0; k < chosen.count; ++k) {
    if (!ops::sparse_is_finite(size(k))) return ops::sparse_nan_scales();
    low = std::min(low, size(k));
    high = std::max(high, size(k));
  }
  const ops::SparseLevels spaced = ops::sparse_spaced(low, high, count);
  ops::SparseSums sums{.n = static_cast<double>(chosen.count)};
  double sizes[ops::kSparseLanes] = {}, products[ops::kSparseLanes] = {};
  for (std::size_t k = 0; k < chosen.count; ++k) {
    const std::size_t lane = chosen.index[k] % std::size_t{ops::kSparseLanes};
    const double level = spaced.nearest(size(k));
    sizes[lane] += size(k);
    products[lane] += level * size(k);
    sums.levels += level;
    sums.squares += level * level;
  }
  sums.sum = ops::lane_total(sizes);
  sums.products = ops::lane_total(products);
  return ops::sparse_fitted(low, sums);
}

}  // namespace

template <class T>
void SparseCode::encode(std::span<const T> block, const RoundingNoise& /*noise*/,
                        std::int64_t /*first*/, std::byte* to) const {
  const Selection<T> chosen(
      block, static_cast<std::size_t>(kept_of(static_cast<std::int64_t>(block.size()))));
  const int count = ops::sparse_levels(bits_);
  const ops::SparseScales scales = scales_for(block, chosen, count);
  static_assert(sizeof scales == kScaleBytes);
  std::memcpy(to, &scales, sizeof scales);
  const ops::SparseLevels levels = scales.levels(count);
  BitWriter writer(to + sizeof scales);
  for (std::size_t k = 0; k < chosen.count; ++k) {
    writer.put(chosen.index[k], kIndexBits);
    writer.put(ops::sparse_value_code(block[chosen.index[k]], levels), bits_);
  }
  writer.finish();
}

template <class T>
void SparseCode::add(const std::byte* from, T factor, std::span<T> to) const {
  ops::SparseScales scales{};
  std::memcpy(&scales, from, sizeof scales);
  BitReader reader(from + sizeof scales);
  const std::int64_t kept = kept_of(static_cast<std::int64_t>(to.size()));
  const int count = ops::sparse_levels(bits_);
  for (std::int64_t k = 0; k < kept; ++k) {
    const std::uint32_t index = reader.get(kIndexBits), code = reader.get(bits_);
    to[index] += ops::sparse_value(scales, count, code, factor);
  }
}

void SparseCode::check(const std::byte* from, std::int64_t count) const {
  BitReader reader(from + kScaleBytes);
  for (std::int64_t k = 0; k < kept_of(count); ++k) {
    const auto index = static_cast<std::int64_t>(reader.get(kIndexBits));
    require(index < count, "an index of a sparse sum is outside its block");
    reader.get(bits_);
  }
}

template <class T>
void SparseCode::clear_sent(const std::byte* from, std::span<T> to) const {
  BitReader reader(from + kScaleBytes);
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
