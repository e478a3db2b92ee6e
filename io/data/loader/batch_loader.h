// Delivers batches to the engine that worker threads have gathered, converted and normalized in
// advance.
#pragma once

#include <cstdint>
#include <memory>

#include "io/data/dataset/dataset.h"
#include "io/data/images/augmentation.h"
#include "io/data/order/sampler.h"
#include "io/data/samples/batch.h"

namespace io {

struct LoaderOptions {
  Normalization normalization = Normalization::kUnit;
  int workers = 1;   // 0: next() does the work on the caller's thread
  int prefetch = 2;  // number of batches prepared in advance
  Augmentation augmentation =
      {};  // for training images; drawn from (the sampler's seed, epoch, sample)
  // Delivers images as bytes with the random draw of each, to be prepared elsewhere (with
  // ImagePreparer::table()).
  bool bytes = false;
  // A device has the samples, and finds those of a batch by their ids: batches have no samples, for
  // text also no labels. Images are `bytes`, whose draws are delivered.
  bool resident = false;
};

// Delivers the steps of a sampler in order, from any (epoch, step), without end: the last step of
// an epoch is followed by step 0 of the next. Allocates only at construction. For one caller.
class BatchLoader {
 public:
  // `dataset` must outlive the loader.
  BatchLoader(const Dataset& dataset, const SamplerOptions& sampler, const LoaderOptions& options);
  ~BatchLoader();

  // Starts (again) at this position; batches prepared for another position are discarded. `taken`,
  // for the samples of this one step, and `divisions`, for this one epoch, are as in Sampler.
  void seek(std::int64_t epoch, std::int64_t step, std::int64_t taken = 0,
            std::span<const Division> divisions = {});
  // Sets the ranks' shares, as Sampler::set_shares(); they apply to all batches from the next
  // seek() on, which must follow.
  void set_shares(const BatchShares& shares);
  // Returns the next batch; its spans stay valid until the following call. A rank without samples
  // in a step gets an empty batch.
  const Batch& next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace io
