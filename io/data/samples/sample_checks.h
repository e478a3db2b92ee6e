// Checks that the kinds of samples share, before they fill batches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "io/data/samples/batch.h"

namespace io {

// Throws DataError unless `found` elements (`unit`: "bytes") are those of how.size samples of
// `width` each.
void check_stored(const Preparation& how, std::size_t found, const char* unit, std::size_t width);
// Throws ConfigError: images were requested for a set that has none.
void refuse_images(const Preparation& how);

}  // namespace io
