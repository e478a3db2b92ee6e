// Sums over all pixels of a channel.
#include "io/data/sources/channel_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace io {

// Sums of whole numbers are exact in any order.
void measure_channels(Dataset& split) {
  const auto channels = static_cast<std::size_t>(split.shape[2]);
  std::vector<std::uint64_t> sums(channels), squares(channels);
  split.mean.clear();
  split.deviation.clear();
  for (std::size_t i = 0; i < split.samples.size(); i += channels) {
    for (std::size_t c = 0; c < channels; ++c) {
      const std::uint64_t value = split.samples[i + c];
      sums[c] += value;
      squares[c] += value * value;
    }
  }
  const std::size_t pixels = split.samples.size() / std::max<std::size_t>(channels, 1);
  const auto count = static_cast<double>(pixels);
  for (std::size_t c = 0; c < channels; ++c) {
    const double mean = static_cast<double>(sums[c]) / count;
    const double variance = static_cast<double>(squares[c]) / count - mean * mean;
    split.mean.push_back(static_cast<float>(mean / 255.0));
    split.deviation.push_back(static_cast<float>(std::sqrt(std::max(variance, 0.0)) / 255.0));
  }
}

}  // namespace io
