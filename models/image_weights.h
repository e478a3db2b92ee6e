// Recognizes the built-in image model that the arrays of a file belong to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"

namespace models {

struct ImageWeights {
  std::string model;
  std::int64_t classes = 0;
};

// Returns the model that has the names and shapes of all parameters among `arrays`, with any number
// of classes; torchvision and timm publish such files of its residual networks. nullopt: none has.
std::optional<ImageWeights> recognize_image_weights(const std::vector<io::NamedArray>& arrays);

// Returns the number of classes if these arrays are the parameters of the built-in image model
// `model`; else 0.
std::int64_t classes_of_image_weights(const std::string& model,
                                      const std::vector<io::NamedArray>& arrays);

}  // namespace models
