// Writes trained text models as Hugging Face's library `transformers` reads them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"

namespace models {

struct PublishedFiles {
  std::string config;                   // config.json
  std::string type;                     // its model_type
  std::int64_t context = 0;             // of the longest text, in tokens
  std::vector<std::int64_t> ends;       // the tokens that end a text
  std::vector<io::NamedArray> tensors;  // of model.safetensors
};

// `name` and `definition` describe the model as in ModelOptions: a list of layers that was made of
// a published model, or mingpt, gpt-nano, gpt-mini or gpt2, whose vocabulary and context are those
// of `arrays`, its parameters. Throws engine::ModelError for another model, and for arrays that
// are not this model's.
PublishedFiles publish(const std::string& name, const std::string& definition,
                       std::vector<io::NamedArray> arrays);

}  // namespace models
