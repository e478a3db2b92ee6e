// Converts an image's bytes to a model's input: augmented, scaled, normalized.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "io/data/images/augmentation.h"
#include "io/data/images/image_format.h"

namespace io {

// Constant after construction, and does not allocate: any number of threads may use one.
class ImagePreparer {
 public:
  // Throws ConfigError with the name of the data set `set` if kStandard is requested and a channel
  // has no mean or no positive deviation.
  ImagePreparer(const ImageFormat& format, const std::string& set, Normalization normalization,
                const Augmentation& augmentation);

  // in and out: height * width * channels. `random` is augmentation_random() of the sample, used
  // only for augmentation.
  void prepare(const std::uint8_t* in, SplitMix random, float* out) const;
  // Returns the draw of prepare(); all zeros without augmentation.
  AugmentationDraw draw(SplitMix random) const;
  // [channels, 257]: for each channel, the output of prepare() for each byte, then the fill value
  // of cutouts.
  std::vector<float> table() const;

 private:
  // Convert pixels that are `step` bytes apart, and pixels of padding. Return the end of the
  // output.
  float* convert_pixels(const std::uint8_t* in, std::int64_t step, std::int64_t pixels,
                        float* out) const;
  float* pad(std::int64_t pixels, float* out) const;
  void convert_row(const std::uint8_t* in, const AugmentationDraw& draw, float* out) const;
  void cut_hole(const AugmentationDraw& draw, float* out) const;

  bool draws() const { return augmentation_.crop || augmentation_.flip || augmentation_.cutout; }

  std::int64_t height_, width_, channels_;
  Augmentation augmentation_;
  std::vector<std::array<float, 256>> tables_;  // for each channel: the value of each byte
  std::vector<float> means_;                    // for each channel, as a value of the output
};

}  // namespace io
