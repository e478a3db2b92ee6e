// Separable triangle filter in fixed-point arithmetic.
//
// A pixel of the result is a weighted mean of the source pixels around the place that it comes
// from. When the image shrinks by a factor s, the triangle is widened to reach s pixels to each
// side, so that every source pixel contributes: point samples would alias. The two-dimensional
// filter is the product of one over rows and one over columns, so it is applied as two passes,
// whose cost grows with the width of the triangle and not with its square. Weights are integers of
// 22 fraction bits and each pass rounds to bytes, because Pillow does both and the results are to
// be equal byte for byte.
#include "io/data/sources/images/resample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace io {
namespace {

constexpr int kWeightBits = 22;  // with pixels of 8 bits a sum stays below 2^31

// Result position i is the weighted sum of `count` source positions from `first` on.
struct Tap {
  std::int64_t first, count;
  std::size_t weights;  // where they begin
};
struct Taps {
  std::vector<Tap> taps;
  std::vector<std::int32_t> weights;  // a tap's sum to about 2^22
};

// From `source` positions to `target` ones, of which only [begin, begin + count) are wanted.
Taps make_taps(std::int64_t source, std::int64_t target, std::int64_t begin, std::int64_t count) {
  const double scale = static_cast<double>(source) / static_cast<double>(target),
               reach = std::max(scale, 1.0);
  Taps result;
  std::vector<double> shares;
  for (std::int64_t i = begin; i < begin + count; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const std::int64_t first =
        std::max<std::int64_t>(static_cast<std::int64_t>(centre - reach + 0.5), 0);
    const std::int64_t last = std::min(static_cast<std::int64_t>(centre + reach + 0.5), source);
    shares.clear();
    double sum = 0;
    for (std::int64_t k = first; k < last; ++k) {
      shares.push_back(
          std::max(0.0, 1 - std::abs((static_cast<double>(k) + 0.5 - centre) / reach)));
      sum += shares.back();
    }
    result.taps.push_back({first, last - first, result.weights.size()});
    for (const double share : shares)
      result.weights.push_back(
          static_cast<std::int32_t>(std::lround(share / sum * (1 << kWeightBits))));
  }
  return result;
}

// The weighted sum of `tap.count` bytes that lie `stride` apart.
std::uint8_t weighted(const std::uint8_t* in, std::ptrdiff_t stride, const Tap& tap,
                      const std::int32_t* weights) {
  std::int32_t sum = 1 << (kWeightBits - 1);
  for (std::int64_t k = 0; k < tap.count; ++k) sum += weights[k] * in[k * stride];
  return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

}  // namespace

void resample(const DecodedImage& image, const PixelBox& box, std::int64_t width,
              std::int64_t height, const PixelBox& window, std::span<std::uint8_t> out) {
  const Taps columns = make_taps(box.width, width, window.left, window.width);
  const Taps rows = make_taps(box.height, height, window.top, window.height);
  const std::int64_t first_row = rows.taps.front().first,
                     end_row = rows.taps.back().first + rows.taps.back().count;

  std::vector<std::uint8_t> narrowed(
      static_cast<std::size_t>((end_row - first_row) * window.width * 3));
  std::uint8_t* to = narrowed.data();
  for (std::int64_t y = first_row; y < end_row; ++y) {
    const std::uint8_t* from = image.pixels.data() + ((box.top + y) * image.width + box.left) * 3;
    for (const Tap& tap : columns.taps)
      for (int c = 0; c < 3; ++c)
        *to++ = weighted(from + tap.first * 3 + c, 3, tap, columns.weights.data() + tap.weights);
  }
  const std::int64_t row = window.width * 3;
  to = out.data();
  for (const Tap& tap : rows.taps) {
    const std::uint8_t* from = narrowed.data() + (tap.first - first_row) * row;
    for (std::int64_t x = 0; x < row; ++x)
      *to++ = weighted(from + x, row, tap, rows.weights.data() + tap.weights);
  }
}

void resize_and_crop(const DecodedImage& image, std::int64_t size, std::span<std::uint8_t> out) {
  const std::int64_t shorter = std::min(image.width, image.height);
  const std::int64_t width = size * image.width / shorter, height = size * image.height / shorter;
  const auto middle = [size](std::int64_t extent) {  // halves to even, as Python rounds
    return static_cast<std::int64_t>(std::nearbyint(static_cast<double>(extent - size) / 2));
  };
  resample(image, {0, 0, image.width, image.height}, width, height,
           {middle(width), middle(height), size, size}, out);
}

}  // namespace io
