// Batches ready for the engine: gathered, converted and normalized ahead of time by worker threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "io/data/images/augmentation.h"
#include "io/data/order/sampler.h"
#include "io/data/sources/dataset.h"

namespace io {

struct Batch {
  std::int64_t epoch = 0, step = 0;  // of the sampler
  std::span<const float>
      samples;  // count * sample_count: NHWC, normalised; or features. Empty for tokens
  std::span<const std::uint8_t>
      pixels;  // instead of samples, where asked for: images as they are stored, NHWC
  std::span<const AugmentationDraw> draws;   // with pixels: count
  std::span<const std::int32_t> tokens;      // count * context. Empty otherwise
  std::span<const std::int32_t> labels;      // count * positions. Empty where there are targets
  std::span<const float> targets;            // instead of labels: count
  std::span<const std::int64_t> sample_ids;  // count
  std::int64_t count() const { return static_cast<std::int64_t>(sample_ids.size()); }
};

struct LoaderOptions {
  Normalization normalization = Normalization::kUnit;
  int workers = 1;   // 0: the caller's thread does the work in next()
  int prefetch = 2;  // batches made ahead
  Augmentation augmentation =
      {};  // of training images; drawn from (the sampler's seed, epoch, sample)
  // Images are handed over as bytes, with what was drawn for each, to be prepared elsewhere (with
  // ImagePreparer::table()).
  bool bytes = false;
};

// Whether batches can be bytes: images that are stored as such. Folders of images are scaled as
// they are read.
bool has_bytes(const Dataset& dataset);

// Delivers the steps of a sampler in order, from any (epoch, step), without end: after the last
// step of an epoch comes step 0 of the next. Allocates at construction only. One caller.
class BatchLoader {
 public:
  // `dataset` outlives the loader.
  BatchLoader(const Dataset& dataset, const SamplerOptions& sampler, const LoaderOptions& options);
  ~BatchLoader();

  // Starts (again) at this place; batches made ahead for another place are dropped. `taken`, of the
  // samples of this one step, as in Sampler.
  void seek(std::int64_t epoch, std::int64_t step, std::int64_t taken = 0);
  // The next batch; its spans stay valid until the following call. A rank without samples in a step
  // gets an empty batch.
  const Batch& next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace io
