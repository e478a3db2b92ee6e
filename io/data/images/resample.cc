// Separable triangle filter in fixed-point arithmetic.
//
// A pixel of the result is a weighted mean of the source pixels around its position. When the image
// shrinks by a factor s, the triangle is widened to reach s pixels to each side, so that every
// source pixel contributes: point samples would alias. The two-dimensional filter is the product of
// one over rows and one over columns, so it is applied as two passes, whose cost grows with the
// width of the triangle and not with its square. Weights are integers with 22 fraction bits and
// each pass rounds to bytes, because Pillow does both and the results must be equal byte for byte.
// The order of the passes is Pillow 13's; earlier versions always start with the columns.
#include "io/data/images/resample.h"

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
  std::size_t weights;  // index of the first weight
};
struct Taps {
  std::vector<Tap> taps;
  std::vector<std::int32_t> weights;  // the weights of a tap add up to about 2^22
};

// Maps `source` positions to `target` ones, of which only [begin, begin + count) are needed.
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

// Returns the weighted sum of `tap.count` bytes that are `stride` apart.
std::uint8_t weighted(const std::uint8_t* in, std::ptrdiff_t stride, const Tap& tap,
                      const std::int32_t* weights) {
  std::int32_t sum = 1 << (kWeightBits - 1);
  for (std::int64_t k = 0; k < tap.count; ++k) sum += weights[k] * in[k * stride];
  return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

// Rows of RGB pixels of which a part is used.
struct Rows {
  const std::uint8_t* first;  // the top left pixel of that part
  std::int64_t stride;        // bytes between rows
};

// Writes `count` rows with one pixel per tap; taps count pixels from rows.first on.
void filter_across(const Rows& rows, std::int64_t count, const Taps& columns, std::uint8_t* to) {
  for (std::int64_t y = 0; y < count; ++y) {
    const std::uint8_t* from = rows.first + y * rows.stride;
    for (const Tap& tap : columns.taps)
      for (int c = 0; c < 3; ++c)
        *to++ = weighted(from + tap.first * 3 + c, 3, tap, columns.weights.data() + tap.weights);
  }
}

// Writes a row of `bytes` bytes for each tap; taps count rows from rows.first on.
void filter_down(const Rows& rows, std::int64_t bytes, const Taps& taps, std::uint8_t* to) {
  for (const Tap& tap : taps.taps) {
    const std::uint8_t* from = rows.first + tap.first * rows.stride;
    for (std::int64_t x = 0; x < bytes; ++x)
      *to++ = weighted(from + x, rows.stride, tap, taps.weights.data() + tap.weights);
  }
}

// Shifts the taps so that they count from the first position that they use. Returns that position.
std::int64_t begin_at_first(Taps& taps) {
  const std::int64_t first = taps.taps.front().first;
  for (Tap& tap : taps.taps) tap.first -= first;
  return first;
}
std::int64_t reached(const Taps& taps) { return taps.taps.back().first + taps.taps.back().count; }

}  // namespace

void resample(const DecodedImage& image, const PixelBox& box, std::int64_t width,
              std::int64_t height, const PixelBox& window, std::span<std::uint8_t> out) {
  Taps columns = make_taps(box.width, width, window.left, window.width);
  Taps rows = make_taps(box.height, height, window.top, window.height);
  const std::int64_t left = box.left + begin_at_first(columns),
                     top = box.top + begin_at_first(rows);
  const Rows source{image.pixels.data() + (top * image.width + left) * 3, image.width * 3};
  // Each pass rounds, so the order affects the result. Pillow 13 starts with the height if that
  // shrinks by more than twice as many pixels as the width.
  const std::int64_t shorter = box.height - height, narrower = box.width - width;
  if (shorter > 0 && shorter > 2 * narrower) {
    const std::int64_t bytes = reached(columns) * 3;
    std::vector<std::uint8_t> between(static_cast<std::size_t>(window.height * bytes));
    filter_down(source, bytes, rows, between.data());
    return filter_across({between.data(), bytes}, window.height, columns, out.data());
  }
  const std::int64_t bytes = window.width * 3;
  std::vector<std::uint8_t> between(static_cast<std::size_t>(reached(rows) * bytes));
  filter_across(source, reached(rows), columns, between.data());
  filter_down({between.data(), bytes}, bytes, rows, out.data());
}

void resize_and_crop(const DecodedImage& image, std::int64_t size, std::span<std::uint8_t> out) {
  const std::int64_t shorter = std::min(image.width, image.height);
  const std::int64_t width = size * image.width / shorter, height = size * image.height / shorter;
  const auto middle = [size](std::int64_t extent) {  // rounds halves to even, as Python does
    return static_cast<std::int64_t>(std::nearbyint(static_cast<double>(extent - size) / 2));
  };
  resample(image, {0, 0, image.width, image.height}, width, height,
           {middle(width), middle(height), size, size}, out);
}

}  // namespace io
