// Loads a text model for `engine sample`: of a run's checkpoint, or of a folder of Hugging Face.
#pragma once

#include <cstdint>
#include <string>

#include "engine/graph/graph.h"
#include "io/checkpoint/checkpoint.h"

namespace tools {

// Returns the checkpoint `path`. For a folder of Hugging Face it has the folder's weights and
// tokenizer, and step 0. Throws as io::load_checkpoint() and models::model_weights() do.
io::Checkpoint load_text_model(const std::string& path);

// Returns e.g. "model 'gpt-nano' of data set 'tokens'".
std::string model_text(const io::Checkpoint& checkpoint);

struct TextGraph {
  engine::Graph graph;
  engine::DType dtype;
};
// The longest text, in tokens: its prompt, and what may be added.
struct TextLength {
  std::int64_t prompt = 0, added = 0;

  std::int64_t total() const { return prompt + added; }
};
// Returns the graph of a checkpoint. A published model that rotates positions sees texts of this
// length; others the number of positions that they were trained with, and a folder's model at most
// the length. Throws io::DataError for a model that does not read text, io::ConfigError for a text
// beyond a sliding window, and as models::build_model() does. `path` names the checkpoint.
TextGraph text_graph(const io::Checkpoint& checkpoint, const std::string& path,
                     const TextLength& length);

}  // namespace tools
