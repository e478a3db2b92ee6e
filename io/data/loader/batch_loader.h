// Batches ready for the engine: gathered, converted and normalized ahead of time by worker threads.
#pragma once

#include <cstdint>
#include <memory>

#include "io/data/dataset/splits.h"
#include "io/data/images/augmentation.h"
#include "io/data/order/sampler.h"
#include "io/data/samples/batch.h"

namespace io {

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

// Delivers the steps of a sampler in order, from any (epoch, step), without end: after the last
// step of an epoch comes step 0 of the next. Allocates at construction only. One caller.
class BatchLoader {
 public:
  // `dataset` outlives the loader.
  BatchLoader(const Dataset& dataset, const SamplerOptions& sampler, const LoaderOptions& options);
  ~BatchLoader();

  // Starts (again) at this place; batches made ahead for another place are dropped. `taken`, of the
  // samples of this one step, and `divisions`, of this one epoch, as in Sampler.
  void seek(std::int64_t epoch, std::int64_t step, std::int64_t taken = 0,
            std::span<const Division> divisions = {});
  // The next batch; its spans stay valid until the following call. A rank without samples in a step
  // gets an empty batch.
  const Batch& next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace io
