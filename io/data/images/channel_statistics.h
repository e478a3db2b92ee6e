// What images are standardised by.
#pragma once

#include "io/data/sources/dataset.h"

namespace io {

// Sets mean and deviation of the split's channels, scaled to [0, 1]. REQUIRES: images in
// `samples`.
void measure_channels(Dataset& split);

}  // namespace io
