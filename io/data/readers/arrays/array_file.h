// Reads the arrays x (samples) and y (labels), of an .npz file or of two .npy files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint/array_source.h"
#include "io/checkpoint/checkpoint.h"
#include "io/data/labels/multi_labels.h"
#include "io/data/samples/array_samples.h"

namespace io {

// The largest token id and the largest class.
inline constexpr std::int64_t kMaxArrayId = (1 << 24) - 1;

// The files of one part of a data set.
struct ArrayPaths {
  std::string x;
  std::string y = "";  // "": x is an .npz file with both arrays
};

struct ArrayFile {
  std::string path, y_path;  // of x and of y, for messages
  NamedArray x, y;           // y: only if wanted
};

// Opens the .npz file, or the .npy file as an array of this name. Throws MissingFileError and
// DataError.
std::unique_ptr<ArraySource> open_array_file(const std::string& path, const std::string& array);

enum class ArrayLabels { kNone, kClasses, kFlags };  // what y has, if it is wanted

// Throws MissingFileError and DataError: no such file, an .npz without these arrays, an array
// without dimensions, an array of no numbers, or another number of samples in y than in x.
ArrayFile read_array_file(const ArrayPaths& paths, ArrayLabels labels);

// Returns the samples of x, in the engine's order: [samples, channels, height, width] as images;
// [samples, length, features] as images of height 1, or `without_channels` [samples, height, width]
// as images of one channel; [samples, features]; [samples, length] of integers as token ids, or
// `integers_are_numbers` as features. Bytes (uint8) of anything but tokens are divided by 255.
// Throws DataError for other dimensions.
ArraySamples array_samples(const ArrayFile& file, bool without_channels,
                           bool integers_are_numbers = false);

// A model takes either token ids or numbers, and of these either bytes, which are divided by 255,
// or others, which are not. Throws DataError with both dtypes if `samples`, read from `path`, are
// of the other kind. Accepts unknown dtypes of numbers. `source` says where `like` comes from: "the
// model of run/step-8.ckpt".
void check_scale(const std::string& path, const ArraySamples& samples, const ArraySamples& like,
                 const std::string& source);

// Returns the numbers of y. `ignored` becomes PositionLabels::kIgnored. Throws DataError for a y of
// no integers, and with the place and the value of a label outside [0, classes); `expected` says
// where the classes come from.
std::vector<std::int32_t> array_labels(const ArrayFile& file, std::int64_t classes,
                                       std::optional<std::int64_t> ignored,
                                       const std::string& expected);

// Returns y, [samples, labels], as labels of 0 or 1 with the names "0", "1", ...; -1 and NaN are
// unknown ones. Throws DataError for another shape, and with the place and the value of another
// number.
MultiLabels array_flags(const ArrayFile& file);

}  // namespace io
