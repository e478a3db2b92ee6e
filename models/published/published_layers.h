// Writes the layers of a published text model as TOML text, and says which tensors of its files
// their parameters are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/published/published_config.h"

namespace models {

// A tensor of model.safetensors, with the shape that follows from config.json.
struct StoredTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};

// A parameter of a layer: the rows of one or more tensors, one after the other.
struct PublishedArray {
  std::string name;
  std::vector<StoredTensor> stored;
  bool transposed = false;  // stored as [in, out], as GPT-2's Conv1D
};

struct PublishedLayers {
  std::string definition;
  std::vector<PublishedArray> arrays;  // in the order of the layers
};

PublishedLayers published_layers(const PublishedConfig& config);

}  // namespace models
