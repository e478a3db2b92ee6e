// From options to the data of a run: which set, which samples a rank takes, how they are prepared.
#pragma once

#include <cstdint>

#include "backends/group.h"
#include "engine/core/shape.h"
#include "io/config/run_config.h"
#include "io/data/batch_loader.h"
#include "io/data/dataset.h"
#include "io/data/epoch_order.h"
#include "io/data/sampler.h"

namespace tools {

io::DatasetOptions dataset_options(const io::RunConfig& config);
// Of one sample, as models take it: [h, w, c], or [context] for tokens.
engine::Shape sample_shape(const io::Dataset& dataset);
io::Augmentation augmentation(const io::RunConfig& config);  // for training only
io::Normalization normalization(const io::RunConfig& config, const io::Dataset& dataset);

// Samples of one update, over all ranks and micro-batches.
std::int64_t global_batch_of(const io::RunConfig& config, int world_size);
// This rank's share of the training. Throws io::DataError for an empty set.
// `order` (make_epoch_order) may be null.
io::SamplerOptions sampler_options(const io::RunConfig& config, const io::Dataset& dataset, const backends::Group& group,
                                   const io::EpochOrder* order);

}  // namespace tools
