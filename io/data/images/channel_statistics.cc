// Computes sums over all pixels of a channel.
#include "io/data/images/channel_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "io/base/machine/cpu_features.h"

namespace io {
namespace {

struct Sums {
  std::uint64_t values = 0, squares = 0;
};

// Integer sums are exact in any order: this adds bytes that are kLanes apart, which belong to one
// channel each, so that the compiler vectorizes the loop.
template <std::size_t kLanes>
[[gnu::always_inline]] inline void add_pixels(std::span<const std::uint8_t> bytes,
                                              std::vector<Sums>& sums) {
  constexpr std::size_t kRows = 1 << 15;  // 255 * 255 * kRows fits in 32 bits
  while (!bytes.empty()) {
    std::uint32_t values[kLanes] = {}, squares[kLanes] = {};
    const std::size_t rows = std::min(kRows, bytes.size() / kLanes);
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const std::uint32_t value = bytes[row * kLanes + lane];
        values[lane] += value;
        squares[lane] += value * value;
      }
    }
    const std::size_t rest = rows == 0 ? bytes.size() : 0;  // less than a row
    for (std::size_t lane = 0; lane < rest; ++lane) {
      values[lane] = bytes[lane];
      squares[lane] = values[lane] * values[lane];
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane % sums.size()].values += values[lane];
      sums[lane % sums.size()].squares += squares[lane];
    }
    bytes = bytes.subspan(rows * kLanes + rest);
  }
}

[[gnu::always_inline]] inline std::vector<Sums> sums_in_lanes(std::span<const std::uint8_t> bytes,
                                                              std::size_t channels) {
  std::vector<Sums> sums(channels);
  if (channels == 1 || channels == 2 || channels == 4) {
    add_pixels<64>(bytes, sums);
  } else if (channels == 3) {
    add_pixels<48>(bytes, sums);
  } else {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const std::uint64_t value = bytes[i];
      sums[i % channels].values += value;
      sums[i % channels].squares += value * value;
    }
  }
  return sums;
}

std::vector<Sums> sums_plain(std::span<const std::uint8_t> bytes, std::size_t channels) {
  return sums_in_lanes(bytes, channels);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] std::vector<Sums> sums_avx2(std::span<const std::uint8_t> bytes,
                                                    std::size_t channels) {
  return sums_in_lanes(bytes, channels);
}

[[gnu::target("avx512f,avx512bw")]] std::vector<Sums> sums_avx512(
    std::span<const std::uint8_t> bytes, std::size_t channels) {
  return sums_in_lanes(bytes, channels);
}
#endif

std::vector<Sums> sums_of(std::span<const std::uint8_t> bytes, std::size_t channels) {
#if defined(__x86_64__)
  const base::CpuFeatures cpu = base::cpu_features();
  if (cpu.avx512) return sums_avx512(bytes, channels);
  if (cpu.avx2) return sums_avx2(bytes, channels);
#endif
  return sums_plain(bytes, channels);
}

}  // namespace

void measure_channels(std::span<const std::uint8_t> pixels, ImageFormat& format) {
  const auto channels = static_cast<std::size_t>(format.shape[2]);
  const std::vector<Sums> sums = sums_of(pixels, channels);
  format.mean.clear();
  format.deviation.clear();
  const auto count = static_cast<double>(pixels.size() / std::max<std::size_t>(channels, 1));
  for (std::size_t c = 0; c < channels; ++c) {
    const double mean = static_cast<double>(sums[c].values) / count;
    const double variance = static_cast<double>(sums[c].squares) / count - mean * mean;
    format.mean.push_back(static_cast<float>(mean / 255.0));
    format.deviation.push_back(static_cast<float>(std::sqrt(std::max(variance, 0.0)) / 255.0));
  }
}

}  // namespace io
