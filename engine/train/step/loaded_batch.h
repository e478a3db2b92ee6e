// A loader's batch as an executor takes it.
#pragma once

#include <vector>

#include "engine/graph/executor.h"
#include "io/data/loader/batch_loader.h"

namespace engine {

// `draws` is the view's memory for what was drawn for images that come as bytes; it grows to the
// largest batch and stays.
BatchView view_of(const io::Batch& batch, std::vector<ops::ImageDraw>& draws);

// Whether the device can prepare this set's images itself; then batches carry bytes.
inline bool sends_bytes(const io::Dataset& dataset, Device device) {
  return device.kind == Device::Kind::kCuda && dataset.has_bytes();
}
// What it needs for that (DeviceExecutorOptions::image_table); empty where it cannot. Throws as
// io::ImagePreparer.
std::vector<float> image_table(const io::Dataset& dataset, io::Normalization normalization,
                               Device device);

}  // namespace engine
