// Makes the views that executors read: of a loader's batch, its micro-batches and its shards.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/averaging/sums/ordered_tree.h"
#include "engine/graph/executor.h"
#include "io/data/loader/batch_loader.h"

namespace engine {

// `draws` is the view's memory for the random draws of images that are transferred as bytes; it
// grows to the largest batch.
BatchView view_of(const io::Batch& batch, std::vector<ops::ImageDraw>& draws);

// Returns micro-batch `index` of `count`, and its size in a batch of `samples`.
BatchView micro_batch_of(const BatchView& batch, std::int64_t index, std::int64_t count);
std::int64_t micro_batch_size(std::int64_t samples, std::int64_t index, std::int64_t count);
// Returns shard `index` of those of `rank`, whose samples of the step are `batch`: a step of
// `global_count` samples is divided into all parts of the cut.
BatchView shard_batch_of(const BatchView& batch, std::int64_t global_count,
                         const TreePartition& cut, int rank, int index);

// Returns true if the device can prepare this set's images itself; then batches contain bytes.
inline bool sends_bytes(const io::Dataset& dataset, Device device) {
  return device.kind == Device::Kind::kCuda && dataset.has_bytes();
}
// Returns the table for that (DeviceExecutorOptions::image_table); empty if the device cannot
// prepare them. Throws like io::ImagePreparer.
std::vector<float> image_table(const io::Dataset& dataset, io::Normalization normalization,
                               Device device);

}  // namespace engine
