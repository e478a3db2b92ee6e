// Reads the arrays x (samples) and y (labels) of an .npz file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "io/data/samples/array_samples.h"

namespace io {

// The largest token id and the largest class.
inline constexpr std::int64_t kMaxArrayId = (1 << 24) - 1;

struct ArrayFile {
  std::string path;
  NamedArray x, y;  // y: only if wanted
};

// Throws MissingFileError and DataError: no .npz file, one without these arrays, an array without
// dimensions, an x of no numbers, a y of no integers, or another number of samples in y than in x.
ArrayFile read_array_file(const std::string& path, bool wants_labels);

// Returns the samples of x, in the engine's order: [samples, channels, height, width] as images;
// [samples, length, features] as images of height 1, or `without_channels` [samples, height, width]
// as images of one channel; [samples, features]; [samples, length] of integers as token ids. Bytes
// (uint8) of anything else are divided by 255. Throws DataError for other dimensions.
ArraySamples array_samples(const ArrayFile& file, bool without_channels);

// Returns the numbers of y. `ignored` becomes PositionLabels::kIgnored. Throws DataError with the
// place and the value of a label outside [0, classes); `expected` says where the classes come from.
std::vector<std::int32_t> array_labels(const ArrayFile& file, std::int64_t classes,
                                       std::optional<std::int64_t> ignored,
                                       const std::string& expected);

}  // namespace io
