// Images as samples: bytes in memory, or a source that decodes them on demand.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/base/digests/digest.h"
#include "io/data/images/image_format.h"
#include "io/data/images/image_source.h"
#include "io/data/samples/batch.h"
#include "io/data/samples/sample_traits.h"

namespace io {

struct ImageSamples {
  static constexpr SampleTraits kTraits{
      .name = "images", .noun = "images", .unit = "images", .single = true};

  ImageFormat format;
  std::vector<std::uint8_t> pixels = {};                // NHWC
  std::shared_ptr<const ImageSource> source = nullptr;  // in place of pixels

  std::array<std::int64_t, 3> shape() const { return format.shape; }
  void set_shape(const std::array<std::int64_t, 3>& shape) { format.shape = shape; }
  std::vector<std::int64_t> model_shape() const {
    return {format.shape.begin(), format.shape.end()};
  }
  std::int64_t positions() const { return 1; }
  std::uint64_t bytes() const { return pixels.size(); }
  std::vector<float> statistics() const;
  void add_to(base::StreamDigest& digest) const;
  ImageSamples like() const { return {.format = format}; }
  void keep(std::span<const std::int64_t> chosen);
  std::string intake() const;
  std::unique_ptr<BatchPart> batch_part(const Preparation& how) const;

  bool has_bytes() const { return !source; }
  // Returns the image as bytes, in `buffer` if it comes from the source.
  std::span<const std::uint8_t> read(std::int64_t sample, std::vector<std::uint8_t>& buffer) const;
};

}  // namespace io
