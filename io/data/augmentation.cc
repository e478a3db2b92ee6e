// Draws what happens to a training image.
#include "io/data/augmentation.h"

#include <algorithm>

namespace io {
namespace {

constexpr std::uint64_t kAugmentationSeed = 0x6175676D656E74;  // keeps these numbers apart from the sample order's

std::int64_t draw_below(SplitMix& random, std::int64_t bound) { return random.below(static_cast<std::uint32_t>(bound)); }

}  // namespace

SplitMix augmentation_random(std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
  return {seed ^ kAugmentationSeed, static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(sample)};
}

AugmentationDraw draw_augmentation(const Augmentation& what, std::int64_t height, std::int64_t width, SplitMix& random) {
  AugmentationDraw draw;
  const std::int64_t padding = what.crop_padding, size = what.cutout_size;
  const std::int64_t shift_y = draw_below(random, 2 * padding + 1) - padding,
                     shift_x = draw_below(random, 2 * padding + 1) - padding;
  const bool mirrored = draw_below(random, 2) == 1;
  const std::int64_t top = draw_below(random, height) - size / 2, left = draw_below(random, width) - size / 2;
  if (what.crop) {
    draw.shift_y = shift_y;
    draw.shift_x = shift_x;
  }
  draw.mirrored = what.flip && mirrored;
  if (what.cutout) {
    draw.hole_top = std::max<std::int64_t>(top, 0);
    draw.hole_left = std::max<std::int64_t>(left, 0);
    draw.hole_bottom = std::min(top + size, height);
    draw.hole_right = std::min(left + size, width);
  }
  return draw;
}

}  // namespace io
