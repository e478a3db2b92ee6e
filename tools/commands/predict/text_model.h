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

struct TextGraph {
  engine::Graph graph;
  engine::DType dtype;
};
// Returns the graph of a checkpoint. A folder's model sees as many tokens as config.json says, but
// at most `most`, the longest text. Throws io::DataError for a model that does not read text, and
// as models::build_model() does. `path` names the checkpoint.
TextGraph text_graph(const io::Checkpoint& checkpoint, const std::string& path, std::int64_t most);

}  // namespace tools
