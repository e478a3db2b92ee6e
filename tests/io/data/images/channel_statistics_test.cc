// Mean and deviation of each channel, beside sums one value at a time.
#include "io/data/images/channel_statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "io/base/numbers/split_mix.h"

namespace io {
namespace {

TEST(ChannelStatistics, AreThoseOfEachValueByItself) {
  SplitMix random(1, 1);
  for (const std::int64_t channels : {1, 2, 3, 4, 5}) {
    // Less than a vector, a vector and a bit, more than a sum of 32 bits holds.
    for (const std::int64_t count : {1, 7, 33, 1000, 2'500'000}) {
      SCOPED_TRACE(std::to_string(channels) + " channels, " + std::to_string(count) + " pixels");
      ImageFormat format{.shape = {count, 1, channels}};
      std::vector<std::uint8_t> bytes;
      std::vector<double> sums(static_cast<std::size_t>(channels)), squares(sums);
      for (std::int64_t i = 0; i < count * channels; ++i) {
        const auto c = static_cast<std::size_t>(i % channels);
        // The first channel is all white: the largest sums there are.
        bytes.push_back(c == 0 ? 255 : static_cast<std::uint8_t>(random.below(256)));
        sums[c] += bytes.back();
        squares[c] += bytes.back() * bytes.back();
      }
      measure_channels(bytes, format);
      ASSERT_EQ(format.mean.size(), sums.size());
      for (std::size_t c = 0; c < sums.size(); ++c) {
        const double mean = sums[c] / static_cast<double>(count);
        const double variance = squares[c] / static_cast<double>(count) - mean * mean;
        EXPECT_EQ(format.mean[c], static_cast<float>(mean / 255));
        EXPECT_EQ(format.deviation[c],
                  static_cast<float>(std::sqrt(std::max(0.0, variance)) / 255));
      }
    }
  }
}

}  // namespace
}  // namespace io
