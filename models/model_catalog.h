// Builds models by name: only the graph, with PyTorch's parameter names and shapes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/graph.h"
#include "io/checkpoint/checkpoint.h"
#include "models/model_options.h"

namespace models {

// `name` is one of model_names(), or the path of a TOML layer list (ends in .toml), of an ONNX
// file (ends in .onnx) or of a folder of Hugging Face (config.json), which are translated to such a
// list. With a definition, any other name is one too: the file or folder may be gone.
// Throws engine::ModelError (unknown name, with the nearest known one; dropout for a model without
// it; a regression loss for token ids or with label smoothing; labels of positions for a model of
// model_names()) and engine::ShapeError (a layer that does not match its input).
engine::Graph build_model(const std::string& name, const ModelOptions& options);

// Notes on a translation for the user.
struct DefinitionNotes {
  std::vector<std::string> lines;
  bool leaves_out_softmax = false;  // the file ends in one, which only the loss of classes contains
  std::string probabilities{};      // a line for all tasks but regression; "": none
};

// Returns the text of a layer list's file, or of the list that an ONNX file or a folder of Hugging
// Face is translated to; "" for one of model_names(). Throws engine::ModelError, and io::Error for
// a file that is missing or damaged.
std::string model_definition(const std::string& name, DefinitionNotes* notes = nullptr);

// Returns true for a file that also has initial values of the parameters: an ONNX file or a folder
// of Hugging Face.
bool has_weights(const std::string& name);
// Returns true for a folder with config.json.
bool is_published_model(const std::string& path);
// Returns a line if the folder also has an adapter, which is not used; else "".
std::string unused_adapter_text(const std::string& folder);
struct TokenCounts {
  std::int64_t vocabulary = 0;  // its data must have as many tokens; 0: it predicts no tokens
  std::int64_t context = 0;     // of the longest text
  bool is_fixed = false;        // all texts have this length
};
// Returns those of a folder of Hugging Face, and of an ONNX file that reads token ids; nullopt for
// another model. Throws as model_definition() does.
std::optional<TokenCounts> token_counts(const std::string& name);
// Returns whether the layer list `definition` was made from a folder of Hugging Face. Throws
// engine::ModelError.
bool is_of_published_model(const std::string& name, const std::string& definition);
// Returns the tokens that end a text, if the layer list `definition` was made from a config.json
// that states them; else none. Throws engine::ModelError.
std::vector<std::int64_t> end_tokens(const std::string& name, const std::string& definition);
// Returns the tokens that end a text by generation_config.json in the folder of Hugging Face; none
// if it is missing. Throws engine::ModelError, and io::Error for a file that is not read.
std::vector<std::int64_t> generation_ends(const std::string& folder);
struct ModelWeights {
  std::vector<io::NamedArray> arrays;  // with the names that the layers of the definition have
  std::vector<std::string> heads;      // layers with a number for each class, which may be others

  // Returns whether the model may have another shape for this parameter: one of the heads.
  bool may_differ(const std::string& parameter) const {
    return std::ranges::any_of(
        heads, [&](const std::string& head) { return parameter.starts_with(head + "."); });
  }
};
// Reads the initial values from the file. Throws as model_definition() does. REQUIRES:
// has_weights(name).
ModelWeights model_weights(const std::string& name);

// Returns the layer list `text` of the file `name` in a normal form, without comments and
// independent of the order of keys: one line for the part before the layers, then one for each
// layer. Throws engine::ModelError.
std::vector<std::string> definition_lines(const std::string& name, const std::string& text);

std::vector<std::string> model_names();

// The options of a model without a data set (engine bench): the sample shape that it was made for,
// and its classes.
ModelOptions default_options(const std::string& name);

}  // namespace models
