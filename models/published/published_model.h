// Reads the folder of a text model that Hugging Face's library `transformers` has written, and
// writes one: config.json and model.safetensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "models/published/published_config.h"

namespace models {

// `folder`: with config.json. Throws engine::ModelError.
PublishedConfig read_published_config(const std::string& folder);

// Returns the ids of eos_token_id in generation_config.json; none if it is missing. Throws
// engine::ModelError, and io::Error for a file that is not read.
std::vector<std::int64_t> read_generation_ends(const std::string& folder);

// Returns the parameters of published_layers() from the folder's weights, in the types in which
// they are stored. Throws engine::ModelError for missing and unexpected tensors and for shapes that
// contradict config.json, io::Error for missing and damaged files.
std::vector<io::NamedArray> read_published_weights(const std::string& folder);

// Returns the tensors of model.safetensors for the parameters among `arrays` of a model with these
// layers. Throws engine::ModelError, which starts with `source`, if one is missing or has another
// shape.
std::vector<io::NamedArray> published_tensors(const PublishedConfig& config,
                                              std::vector<io::NamedArray> arrays,
                                              const std::string& source);

}  // namespace models
