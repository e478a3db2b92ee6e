// Copies the samples of a data set to a CUDA device, where batches are gathered by sample ids.
// Labels and random draws, which are small, still come with each batch.
#pragma once

#include <cstdint>
#include <string>

#include "engine/core/arena.h"
#include "engine/graph/resident_samples.h"
#include "io/data/dataset/dataset.h"

namespace engine {

class DeviceSamples {
 public:
  // REQUIRES: obstacle() is "". Waits for the copy. Throws CudaError, and io::DataError for tokens
  // that cannot be read.
  DeviceSamples(const io::Dataset& dataset, Device device);
  const ResidentSamples& view() const { return view_; }

  // Returns why the samples of this set cannot lie on a device; "" if they can.
  static std::string obstacle(const io::Dataset& dataset);
  static std::uint64_t bytes(const io::Dataset& dataset);  // REQUIRES: obstacle() is ""

 private:
  Arena memory_;
  ResidentSamples view_;
};

}  // namespace engine
