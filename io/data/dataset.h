// A set of samples with labels, all in memory as bytes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace io {

enum class Normalization { kUnit, kStandard };  // x/255; then (x/255 - mean) / deviation per channel

// One split (training or test) of an image set.
struct Dataset {
  std::string name;                     // "mnist"
  std::array<std::int64_t, 3> shape{};  // height, width, channels
  std::int64_t classes = 0;
  std::vector<std::uint8_t> samples;   // size() * height * width * channels, NHWC
  std::vector<std::int32_t> labels;    // size()
  std::vector<float> mean, deviation;  // per channel, of the training split scaled to [0, 1]

  std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }
  std::int64_t sample_count() const { return shape[0] * shape[1] * shape[2]; }  // elements of one sample
};

struct DatasetSplits {
  Dataset train, test;
};

struct DatasetOptions {
  std::string name;        // mnist, fashion-mnist, cifar10, glyphs, synthetic
  std::string directory;   // where the files lie; unused by glyphs and synthetic
  std::uint64_t seed = 0;  // glyphs and synthetic
  std::int64_t limit = 0;  // > 0: only the first so many training samples (mean and deviation stay those of all)
  std::array<std::int64_t, 3> synthetic_shape{28, 28, 1};
  std::int64_t synthetic_size = 10'000, synthetic_classes = 10;  // training samples; the test split has a tenth of them
};

// Throws DataError (names the file, what was found and what was expected), MissingFileError (says which files were looked
// for and how to get them) and ConfigError (unknown name, with the nearest).
DatasetSplits load_dataset(const DatasetOptions& options);

std::vector<std::string> dataset_names();

}  // namespace io
