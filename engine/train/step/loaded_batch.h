// Converts a loader's batch to the view that an executor reads.
#pragma once

#include <vector>

#include "engine/graph/executor.h"
#include "io/data/loader/batch_loader.h"

namespace engine {

// `draws` is the view's memory for the random draws of images that are transferred as bytes; it
// grows to the largest batch.
BatchView view_of(const io::Batch& batch, std::vector<ops::ImageDraw>& draws);

// Returns true if the device can prepare this set's images itself; then batches contain bytes.
inline bool sends_bytes(const io::Dataset& dataset, Device device) {
  return device.kind == Device::Kind::kCuda && dataset.has_bytes();
}
// Returns the table for that (DeviceExecutorOptions::image_table); empty if the device cannot
// prepare them. Throws like io::ImagePreparer.
std::vector<float> image_table(const io::Dataset& dataset, io::Normalization normalization,
                               Device device);

}  // namespace engine
