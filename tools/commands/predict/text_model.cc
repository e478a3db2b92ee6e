// A checkpoint's options, or a folder's config.json, state the length of a text.
#include "tools/commands/predict/text_model.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "io/data/readers/tokens/text_files.h"
#include "models/model_catalog.h"
#include "tools/commands/predict/saved_run.h"
#include "tools/folder/run_reference.h"
#include "tools/run/data/sample_statement.h"
#include "tools/run/data/session_data.h"

namespace tools {
namespace {

// A folder whose name is a built-in model's is found by its path.
std::string path_of(const std::string& folder) {
  return folder.find('/') == folder.npos ? "./" + folder : folder;
}

std::int64_t saved_number(const ConfigValues& values, const std::string& name,
                          const std::string& path) {
  const auto found = values.find(name);
  if (found == values.end())
    throw io::DataError(path + ": its configuration lacks the model's " + name);
  std::int64_t number = 0;
  const std::string& text = found->second.value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 1 || number > (1 << 24))
    throw io::DataError(path + ": its configuration has " + name + " '" + text + "'");
  return number;
}

// Returns the shape of the model's samples and the size of its vocabulary, which older checkpoints
// do not state.
models::ModelOptions text_shape(const io::Checkpoint& checkpoint, const ConfigValues& values,
                                const std::string& path, std::int64_t most) {
  if (models::is_published_model(path)) {
    const models::TokenCounts tokens = *models::token_counts(checkpoint.model);
    return {.sample_shape = engine::Shape{std::min(tokens.context, most)},
            .classes = tokens.vocabulary};
  }
  if (!checkpoint.samples.empty()) {
    const io::Dataset set = read_sample_statement(checkpoint.samples, path).splits.train;
    if (set.find<io::TokenSamples>() != nullptr)
      return {.sample_shape = sample_shape(set), .classes = set.classes()};
  } else if (!checkpoint.vocabulary.empty()) {
    return {.sample_shape = engine::Shape{saved_number(values, "context", path)},
            .classes = std::ssize(checkpoint.vocabulary)};
  } else if (checkpoint.dataset == "tokens") {
    return {.sample_shape = engine::Shape{saved_number(values, "context", path)},
            .classes = saved_number(values, "vocabulary-size", path)};
  }
  throw io::DataError(
      path + ": model '" + checkpoint.model + "' of data set '" + checkpoint.dataset +
      "' does not read text; engine sample needs a model trained on text or tokens");
}

}  // namespace

io::Checkpoint load_text_model(const std::string& path) {
  if (!models::is_published_model(path)) return io::load_checkpoint(path);
  io::Checkpoint checkpoint;
  checkpoint.model = path_of(path);
  checkpoint.dataset = "tokens";
  checkpoint.definition = models::model_definition(checkpoint.model);
  checkpoint.arrays = models::model_weights(checkpoint.model).arrays;
  checkpoint.tokenizer = io::read_stored_tokenizer(path);
  return checkpoint;
}

TextGraph text_graph(const io::Checkpoint& checkpoint, const std::string& path, std::int64_t most) {
  ConfigValues values;
  take_saved_options(options_in(checkpoint, path), values);
  const auto dtype = values.find("dtype");
  models::ModelOptions options = text_shape(checkpoint, values, path, most);
  options.definition = checkpoint.definition;
  return {.graph = models::build_model(checkpoint.model, options),
          .dtype = dtype != values.end() && dtype->second.value == "f64" ? engine::DType::kF64
                                                                         : engine::DType::kF32};
}

}  // namespace tools
