// Random augmentation of training images: crops, flips, cutout. The choices depend on the sample,
// so that they are the same on every rank.
#pragma once

#include <cstdint>

#include "io/base/numbers/split_mix.h"

namespace io {

// The changes that are made to an image, in this order. If all are off, it is unchanged.
struct Augmentation {
  // Image folders: a random part of random size and shape, instead of the middle.
  bool resized_crop = false;
  bool crop = false;  // shifts by up to crop_padding pixels in each direction, and fills with black
  bool flip = false;  // mirrors left and right with probability 0.5
  bool cutout = false;  // fills a square with the channels' means; DeVries, Taylor, 2017
                        // (arXiv:1708.04552)
  int crop_padding = 4, cutout_size = 16;

  bool any() const { return resized_crop || crop || flip || cutout; }
};

// The changes drawn for one image.
struct AugmentationDraw {
  std::int64_t shift_y = 0, shift_x = 0;  // output pixel (y, x) is input pixel (y + shift_y, x +
                                          // shift_x), before mirroring
  bool mirrored = false;
  std::int64_t cutout_top = 0, cutout_left = 0, cutout_bottom = 0,
               cutout_right = 0;  // [top, bottom) x [left, right); may be empty
};

// Returns the random numbers of a sample in an epoch, which depend on nothing else, in particular
// not on the rank or worker.
SplitMix augmentation_random(std::uint64_t seed, std::int64_t epoch, std::int64_t sample);

// All numbers are always drawn, in a fixed order: enabling one change does not affect the others.
AugmentationDraw draw_augmentation(const Augmentation& what, std::int64_t height,
                                   std::int64_t width, SplitMix& random);

// A part of an image.
struct ResizedCrop {
  std::int64_t left, top, width, height;
};

// Draws 8 % to 100 % of the area and a ratio of width to height from 3/4 to 4/3, both at random, or
// uses the middle if that fails, as torchvision's RandomResizedCrop. Method: C. Szegedy et al.,
// "Going deeper with convolutions", CVPR 2015, section 6.
ResizedCrop draw_resized_crop(std::int64_t height, std::int64_t width, SplitMix& random);
// Returns its random numbers, which are separate from those of the other changes.
SplitMix resized_crop_random(std::uint64_t seed, std::int64_t epoch, std::int64_t sample);

}  // namespace io
