// The messages name the data set, what was found and what was expected.
#include "io/data/samples/sample_checks.h"

#include <string>

#include "io/base/files/io_error.h"

namespace io {

void check_stored(const Preparation& how, std::size_t found, const char* unit, std::size_t width) {
  const std::size_t expected = static_cast<std::size_t>(how.size) * width;
  if (found == expected) return;
  throw DataError("data set " + how.set + ": found " + std::to_string(found) + " " + unit +
                  " of samples, expected " + std::to_string(expected) + " (" +
                  std::to_string(how.size) + " samples)");
}

void refuse_images(const Preparation& how) {
  if (how.bytes) throw ConfigError("data set " + how.set + " holds no images as bytes");
  if (how.augmentation.resized_crop)
    throw ConfigError(
        "data set " + how.set +
        " is not a folder of images: --augment resized-crop needs images in full size");
  if (how.augmentation.any())
    throw ConfigError("data set " + how.set + " has no images to augment: leave out --augment");
}

}  // namespace io
