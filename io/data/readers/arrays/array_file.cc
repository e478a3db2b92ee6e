// Converts arrays of any type to numbers, and images to the engine's order.
#include "io/data/readers/arrays/array_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/base/numbers/half.h"
#include "io/base/numbers/number_bytes.h"
#include "io/base/numbers/numpy_name.h"
#include "io/base/text/text_parts.h"
#include "io/data/labels/position_labels.h"
#include "io/interchange/array_files.h"
#include "io/interchange/numpy/npy.h"

namespace io {
namespace {

constexpr const char* kExpectedLabels =
    ", expected numbers of classes as uint8, int32 or int64: y.astype('int64'), or "
    "np.unique(y, return_inverse=True)[1] of names";
constexpr const char* kExpectedFlags =
    ", expected labels of 0, 1 or -1 as uint8, int32, int64 or floats: y.astype('uint8')";
constexpr const char* kExpectedSamples =
    ", expected float16, float32, float64, uint8, int32 or int64; convert it with .astype()";

// `expected` ends the message about a dtype that is not read.
NamedArray read_array(ArraySource& source, const std::string& name, const char* expected) {
  for (std::size_t i = 0; i < source.entries().size(); ++i) {
    const ArrayEntry& entry = source.entries()[i];
    if (entry.name != name) continue;
    source.check_unpacked(entry.bytes);
    NamedArray array;
    array.name = name;
    array.type = entry.type;
    array.shape = entry.shape;
    array.data.resize(entry.bytes);
    source.read(i, 0, array.data);
    if (array.shape.empty() || array.data.empty())
      throw DataError(source.name() + ": " + name + " has the shape " +
                      base::shape_text(array.shape) + ", expected samples in its first dimension");
    return array;
  }
  for (const UnreadArray& array : source.unread())
    if (array.name == name)
      throw DataError(source.name() + ": " + name + " has the dtype " + array.type + expected);
  throw DataError(source.name() + ": found no array " + name +
                  "; expected x and y, as of np.savez(file, x=x, y=y)");
}

bool is_integer(const NamedArray& array) {
  return array.type == DType::kU8 || array.type == DType::kI32 || array.type == DType::kI64;
}

std::int64_t integer_at(const NamedArray& array, std::size_t i) {
  if (array.type == DType::kU8) return base::element_at<std::uint8_t>(array.data, i);
  if (array.type == DType::kI32) return base::element_at<std::int32_t>(array.data, i);
  return base::element_at<std::int64_t>(array.data, i);
}

float number_at(const NamedArray& array, std::size_t i) {
  switch (array.type) {
    case DType::kF16:
      return base::to_float(base::element_at<base::f16>(array.data, i));
    case DType::kF32:
      return base::element_at<float>(array.data, i);
    case DType::kF64:
      return static_cast<float>(base::element_at<double>(array.data, i));
    case DType::kU8:
      return static_cast<float>(base::element_at<std::uint8_t>(array.data, i)) / 255;
    default:
      return static_cast<float>(integer_at(array, i));
  }
}

std::size_t elements_of(const NamedArray& array) { return array.data.size() / size_of(array.type); }

// "y[3, 0, 7]"
std::string place_of(const NamedArray& array, std::size_t element) {
  std::vector<std::int64_t> place(array.shape.size());
  for (std::size_t d = place.size(); d-- > 0;) {
    const auto extent = static_cast<std::size_t>(array.shape[d]);
    place[d] = static_cast<std::int64_t>(element % extent);
    element /= extent;
  }
  return array.name + base::shape_text(place);
}

// Returns element i of x, which must be finite as a float.
float sample_number(const ArrayFile& file, std::size_t i) {
  const float value = number_at(file.x, i);
  if (std::isfinite(value)) return value;
  const double found =
      file.x.type == DType::kF64 ? base::element_at<double>(file.x.data, i) : value;
  throw DataError(file.path + ": " + place_of(file.x, i) + " is " + base::shortest_text(found) +
                  ", expected a " +
                  (std::isfinite(found) ? "number that float32 can hold" : "finite number"));
}

// From [samples, channels, rest] to [samples, rest, channels].
std::vector<float> with_channels_last(const ArrayFile& file, std::size_t channels,
                                      std::size_t rest) {
  std::vector<float> values(elements_of(file.x));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t sample = i / (channels * rest), c = i / rest % channels, at = i % rest;
    values[(sample * rest + at) * channels + c] = sample_number(file, i);
  }
  return values;
}

std::vector<std::int32_t> token_ids(const ArrayFile& file) {
  std::vector<std::int32_t> ids(elements_of(file.x));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int64_t id = integer_at(file.x, i);
    if (id < 0 || id > kMaxArrayId)
      throw DataError(file.path + ": " + place_of(file.x, i) + " is " + std::to_string(id) +
                      ", expected token ids from 0 to " + std::to_string(kMaxArrayId) +
                      ", as which integers of two dimensions are read; save numbers as floats");
    ids[i] = static_cast<std::int32_t>(id);
  }
  return ids;
}

}  // namespace

std::unique_ptr<ArraySource> open_array_file(const std::string& path, const std::string& array) {
  if (!std::filesystem::is_regular_file(path))
    throw MissingFileError("cannot open " + path + ": no such file");
  return path.ends_with(".npy") ? open_npy(open_bytes(path), array) : open_arrays(path);
}

ArrayFile read_array_file(const ArrayPaths& paths, ArrayLabels labels) {
  std::unique_ptr<ArraySource> source = open_array_file(paths.x, "x");
  ArrayFile file{.path = paths.x,
                 .y_path = paths.y.empty() ? paths.x : paths.y,
                 .x = read_array(*source, "x", kExpectedSamples),
                 .y = {}};
  if (labels == ArrayLabels::kNone) return file;
  if (!paths.y.empty()) source = open_array_file(paths.y, "y");
  file.y =
      read_array(*source, "y", labels == ArrayLabels::kFlags ? kExpectedFlags : kExpectedLabels);
  source->finish();
  if (file.y.shape[0] != file.x.shape[0])
    throw DataError(file.y_path + ": y has the shape " + base::shape_text(file.y.shape) +
                    ", expected labels of " + std::to_string(file.x.shape[0]) +
                    " samples, as x has them");
  return file;
}

ArraySamples array_samples(const ArrayFile& file, bool without_channels,
                           bool integers_are_numbers) {
  const std::vector<std::int64_t>& shape = file.x.shape;
  ArraySamples samples{.dtype = file.x.type};
  if (shape.size() == 2 && is_integer(file.x) && !integers_are_numbers) {
    samples.extents = {shape[1], 1, 1};
    samples.are_tokens = true;
    samples.ids = token_ids(file);
    return samples;
  }
  if (shape.size() == 4) {
    samples.extents = {shape[2], shape[3], shape[1]};
    samples.values = with_channels_last(file, static_cast<std::size_t>(shape[1]),
                                        static_cast<std::size_t>(shape[2] * shape[3]));
    return samples;
  }
  if (shape.size() != 2 && shape.size() != 3)
    throw DataError(file.path + ": x has the shape " + base::shape_text(shape) +
                    ", expected [samples, channels, height, width], [samples, length, features] or "
                    "[samples, features]");
  if (shape.size() == 2)
    samples.extents = {1, 1, shape[1]};
  else if (without_channels)
    samples.extents = {shape[1], shape[2], 1};
  else
    samples.extents = {1, shape[1], shape[2]};
  samples.values.resize(elements_of(file.x));
  for (std::size_t i = 0; i < samples.values.size(); ++i)
    samples.values[i] = sample_number(file, i);
  return samples;
}

namespace {

void check_content(const std::string& path, const ArraySamples& samples, const ArraySamples& like,
                   const std::string& source) {
  if (samples.are_tokens == like.are_tokens) return;
  const auto named = [](const ArraySamples& array) {
    return array.dtype ? std::string(base::numpy_name(*array.dtype)) : "float32";
  };
  throw DataError(path + ": x has " +
                  (samples.are_tokens ? "integers in two dimensions, which are read as token ids"
                                      : "numbers of the dtype " + named(samples)) +
                  ", but that of " + source + " has " +
                  (like.are_tokens ? "token ids: save x as int32, of the shape [samples, length]"
                                   : "numbers: save x as " + named(like)));
}

}  // namespace

void check_scale(const std::string& path, const ArraySamples& samples, const ArraySamples& like,
                 const std::string& source) {
  check_content(path, samples, like, source);
  if (samples.are_tokens || !samples.dtype || !like.dtype) return;
  const bool is_scaled = samples.dtype == DType::kU8;
  if (is_scaled == (like.dtype == DType::kU8)) return;
  const std::string expected(base::numpy_name(*like.dtype));
  throw DataError(
      path + ": x has the dtype " + std::string(base::numpy_name(*samples.dtype)) +
      ", but that of " + source + " is " + expected +
      "; uint8 is divided by 255 and other numbers are not: " +
      (is_scaled ? "save x as " + expected + " on the scale of training" : "save x as uint8"));
}

std::vector<std::int32_t> array_labels(const ArrayFile& file, std::int64_t classes,
                                       std::optional<std::int64_t> ignored,
                                       const std::string& expected) {
  if (!is_integer(file.y))
    throw DataError(file.y_path + ": y has the dtype " + std::string(to_string(file.y.type)) +
                    kExpectedLabels);
  std::vector<std::int32_t> ids(elements_of(file.y));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int64_t id = integer_at(file.y, i);
    if (ignored && id == *ignored) {
      ids[i] = PositionLabels::kIgnored;
      continue;
    }
    if (id < 0 || id >= classes)
      throw DataError(file.y_path + ": " + place_of(file.y, i) + " is " + std::to_string(id) +
                      ", expected 0 to " + std::to_string(classes - 1) + ", " + expected +
                      (file.y.shape.size() > 1
                           ? "; a position without a label has the number of --ignore-id"
                           : ""));
    ids[i] = static_cast<std::int32_t>(id);
  }
  return ids;
}

MultiLabels array_flags(const ArrayFile& file) {
  if (file.y.shape.size() != 2)
    throw DataError(file.y_path + ": y has the shape " + base::shape_text(file.y.shape) +
                    ", expected [samples, labels] for --task multi-label");
  MultiLabels labels;
  for (std::int64_t i = 0; i < file.y.shape[1]; ++i) labels.names.push_back(std::to_string(i));
  labels.values.resize(elements_of(file.y));
  for (std::size_t i = 0; i < labels.values.size(); ++i) {
    const float value =
        is_integer(file.y) ? static_cast<float>(integer_at(file.y, i)) : number_at(file.y, i);
    const bool is_unknown = value == -1 || std::isnan(value);
    if (!is_unknown && value != 0 && value != 1)
      throw DataError(file.y_path + ": " + place_of(file.y, i) + " is " +
                      base::shortest_text(value) +
                      ", expected 0, 1, or -1 for a label that is unknown");
    labels.values[i] = is_unknown ? std::numeric_limits<float>::quiet_NaN() : value;
  }
  return labels;
}

}  // namespace io
