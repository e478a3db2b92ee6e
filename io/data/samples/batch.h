// Defines a batch, its memory, and the interface of the parts that fill it: one for the samples,
// one for the labels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/data/images/augmentation.h"
#include "io/data/images/image_format.h"

namespace io {

struct Batch {
  std::int64_t epoch = 0, step = 0;  // position in the sampler
  // count * sample_count: NHWC, normalized; or features. Empty for tokens.
  std::span<const float> samples;
  // In place of samples, if requested: images as they are stored, NHWC.
  std::span<const std::uint8_t> pixels;
  std::span<const AugmentationDraw> draws;  // with pixels: count
  std::span<const std::int32_t> tokens;     // count * context. Empty otherwise
  std::span<const std::int32_t> labels;     // count * positions. Empty if there are targets
  std::span<const float> targets;           // in place of labels: count, or count * labels
  // Weights of the losses, one for each label; or of positives, one for each target. Empty: 1 each.
  std::span<const double> weights;
  std::span<const std::int64_t> sample_ids;  // count
  bool resident = false;                     // a device has the samples (LoaderOptions::resident)
  std::int64_t count() const { return static_cast<std::int64_t>(sample_ids.size()); }
};

// The memory of a batch, and the batch that refers to it. The parts reserve the vectors that they
// fill.
struct BatchMemory {
  std::vector<float> samples, targets;
  std::vector<double> weights;
  std::vector<std::uint8_t> pixels;
  std::vector<AugmentationDraw> draws;
  std::vector<std::uint8_t> image;  // buffer for one image from its source
  std::vector<std::int32_t> tokens, labels;
  std::vector<std::int64_t> ids;
  Batch batch;
};

// Fills its part of batches. Constant after construction: any number of threads may use one.
class BatchPart {
 public:
  virtual ~BatchPart() = default;
  // Reserves memory for batches of `samples` samples. No other call allocates.
  virtual void reserve(BatchMemory& memory, std::size_t samples) const = 0;
  // Fills the part for the samples of `batch.sample_ids`, in `batch.epoch`, and points the batch at
  // it. Throws DataError with the sample or its file.
  virtual void fill(BatchMemory& memory) const = 0;
};

// Describes how the samples of a set are converted for batches.
struct Preparation {
  std::string set = {};   // name of the set for messages
  std::int64_t size = 0;  // number of samples in the set
  Normalization normalization = Normalization::kUnit;
  Augmentation augmentation = {};
  bool bytes = false;  // images as bytes, with the random draw of each (Batch::pixels)
  // A device has the samples: batches name them by their ids; of images they have the draws.
  bool resident = false;
  std::uint64_t seed = 0;
};

}  // namespace io
