// Fills batches with samples that are rows of numbers in memory.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "io/data/samples/batch.h"

namespace io {

// `values` has `width` numbers per sample, and must outlive the part.
std::unique_ptr<BatchPart> copied_rows(const std::vector<float>& values, std::size_t width);

}  // namespace io
