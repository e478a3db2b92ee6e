// Draws the random choices for a training image.
#include "io/data/images/augmentation.h"

#include <algorithm>
#include <cmath>

namespace io {
namespace {

constexpr std::uint64_t kAugmentationSeed =
    0x6175676D656E74;  // separates these random numbers from those of the sample order

constexpr std::uint64_t kResizedCropSeed = 0x726573697A6564;

double draw_between(SplitMix& random, double low, double high) {
  return low + (high - low) * (static_cast<double>(random.next() >> 11) * 0x1p-53);
}

std::int64_t draw_below(SplitMix& random, std::int64_t bound) {
  return random.below(static_cast<std::uint32_t>(bound));
}

}  // namespace

SplitMix augmentation_random(std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
  return {seed ^ kAugmentationSeed, static_cast<std::uint64_t>(epoch),
          static_cast<std::uint64_t>(sample)};
}

AugmentationDraw draw_augmentation(const Augmentation& what, std::int64_t height,
                                   std::int64_t width, SplitMix& random) {
  AugmentationDraw draw;
  const std::int64_t padding = what.crop_padding, size = what.cutout_size;
  const std::int64_t shift_y = draw_below(random, 2 * padding + 1) - padding,
                     shift_x = draw_below(random, 2 * padding + 1) - padding;
  const bool mirrored = draw_below(random, 2) == 1;
  const std::int64_t top = draw_below(random, height) - size / 2,
                     left = draw_below(random, width) - size / 2;
  if (what.crop) {
    draw.shift_y = shift_y;
    draw.shift_x = shift_x;
  }
  draw.mirrored = what.flip && mirrored;
  if (what.cutout) {
    draw.cutout_top = std::max<std::int64_t>(top, 0);
    draw.cutout_left = std::max<std::int64_t>(left, 0);
    draw.cutout_bottom = std::min(top + size, height);
    draw.cutout_right = std::min(left + size, width);
  }
  return draw;
}

SplitMix resized_crop_random(std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
  return {seed ^ kResizedCropSeed, static_cast<std::uint64_t>(epoch),
          static_cast<std::uint64_t>(sample)};
}

ResizedCrop draw_resized_crop(std::int64_t height, std::int64_t width, SplitMix& random) {
  constexpr double kNarrowest = 3.0 / 4, kWidest = 4.0 / 3;
  const double area = static_cast<double>(height) * static_cast<double>(width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double wanted = area * draw_between(random, 0.08, 1);
    const double ratio = std::exp(draw_between(random, std::log(kNarrowest), std::log(kWidest)));
    const std::int64_t w = std::llround(std::sqrt(wanted * ratio)),
                       h = std::llround(std::sqrt(wanted / ratio));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    const std::int64_t top = draw_below(random, height - h + 1);
    return {draw_below(random, width - w + 1), top, w, h};
  }
  // No crop fitted into a very long image: use as much of its middle as the ratios allow.
  std::int64_t w = width, h = height;
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  if (ratio < kNarrowest)
    h = std::min(height,
                 std::max<std::int64_t>(1, std::llround(static_cast<double>(width) / kNarrowest)));
  if (ratio > kWidest)
    w = std::min(width,
                 std::max<std::int64_t>(1, std::llround(static_cast<double>(height) * kWidest)));
  return {(width - w) / 2, (height - h) / 2, w, h};
}

}  // namespace io
