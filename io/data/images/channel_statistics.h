// Measures the mean and deviation that images are standardized with.
#pragma once

#include <cstdint>
#include <span>

#include "io/data/images/image_format.h"

namespace io {

// Sets mean and deviation of the channels, scaled to [0, 1], to those of these images.
void measure_channels(std::span<const std::uint8_t> pixels, ImageFormat& format);

}  // namespace io
