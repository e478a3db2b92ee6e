// Random augmentation of training images: crops, flips, cutout. The choices depend on the sample,
// so that they are the same on every rank.
#pragma once

#include <cstdint>

#include "io/base/numbers/split_mix.h"

namespace io {

// What may happen to an image, in this order. All off: nothing.
struct Augmentation {
  bool resized_crop =
      false;  // image folders: a random part of random size and shape, instead of the middle
  bool crop =
      false;  // shifted by up to crop_padding pixels each way; black comes in from the border
  bool flip = false;    // left and right exchanged, half the time
  bool cutout = false;  // a square is filled with the channels' means; DeVries, Taylor, 2017
                        // (arXiv:1708.04552)
  int crop_padding = 4, cutout_size = 16;

  bool any() const { return resized_crop || crop || flip || cutout; }
};

// One image's fate.
struct AugmentationDraw {
  std::int64_t shift_y = 0, shift_x = 0;  // output pixel (y, x) is input pixel (y + shift_y, x +
                                          // shift_x), before mirroring
  bool mirrored = false;
  std::int64_t cutout_top = 0, cutout_left = 0, cutout_bottom = 0,
               cutout_right = 0;  // [top, bottom) x [left, right); may be empty
};

// The random numbers of a sample in an epoch; nothing else goes into them, neither rank nor worker.
SplitMix augmentation_random(std::uint64_t seed, std::int64_t epoch, std::int64_t sample);

// The numbers are drawn in a fixed order and always all of them: turning one change on leaves the
// others as they were.
AugmentationDraw draw_augmentation(const Augmentation& what, std::int64_t height,
                                   std::int64_t width, SplitMix& random);

// A part of an image.
struct ResizedCrop {
  std::int64_t left, top, width, height;
};

// Of 8 % to 100 % of the area and a ratio of width to height from 3/4 to 4/3, both at random, or
// else the middle, as torchvision's RandomResizedCrop. Method: C. Szegedy et al., "Going deeper
// with convolutions", CVPR 2015, section 6.
ResizedCrop draw_resized_crop(std::int64_t height, std::int64_t width, SplitMix& random);
// Its random numbers, apart from those of the other changes.
SplitMix resized_crop_random(std::uint64_t seed, std::int64_t epoch, std::int64_t sample);

}  // namespace io
