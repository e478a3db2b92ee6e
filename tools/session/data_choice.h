// From options to the data of a run: which set, which samples a rank takes, how they are prepared.
#pragma once

#include <cstdint>

#include "backends/group.h"
#include "engine/core/shape.h"
#include "io/data/loader/batch_loader.h"
#include "io/data/order/epoch_order.h"
#include "io/data/order/sampler.h"
#include "io/data/sources/dataset.h"
#include "tools/options/run_config.h"

namespace tools {

io::DatasetOptions dataset_options(const tools::RunConfig& config);
// Of one sample, as models take it: [h, w, c], or [context] for tokens.
engine::Shape sample_shape(const io::Dataset& dataset);
io::Augmentation augmentation(const tools::RunConfig& config);  // for training only
io::Normalization normalization(const tools::RunConfig& config, const io::Dataset& dataset);

// Samples of one update, over all ranks and micro-batches.
std::int64_t global_batch_of(const tools::RunConfig& config, int world_size);
// This rank's share of the training. Throws io::DataError for an empty set.
// `order` (make_epoch_order) may be null.
io::SamplerOptions sampler_options(const tools::RunConfig& config, const io::Dataset& dataset,
                                   const backends::Group& group, const io::EpochOrder* order);

}  // namespace tools
