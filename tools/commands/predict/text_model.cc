// A checkpoint's options, or a folder's config.json, state the length of a text.
#include "tools/commands/predict/text_model.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "io/data/readers/tokens/text_files.h"
#include "models/model_catalog.h"
#include "models/text_limits.h"
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
models::ModelOptions stated_shape(const io::Checkpoint& checkpoint, const ConfigValues& values,
                                  const std::string& path) {
  if (models::is_published_model(path)) {
    const models::TokenCounts tokens = *models::token_counts(checkpoint.model);
    return {.sample_shape = engine::Shape{tokens.context}, .classes = tokens.vocabulary};
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
  } else if (checkpoint.dataset.empty()) {  // an import
    if (const auto sizes = models::text_defaults(checkpoint.model, checkpoint.definition))
      return {.sample_shape = engine::Shape{sizes->context}, .classes = sizes->vocabulary};
  }
  throw io::DataError(path + ": " + model_text(checkpoint) +
                      " does not read text; engine sample needs a model of text or tokens");
}

// Throws for a text that is too long for a published model that rotates positions.
void check_length(const models::TextLimits& limits, const std::string& path,
                  const TextLength& length) {
  constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;
  const std::string prompt = std::to_string(length.prompt), added = std::to_string(length.added);
  if (limits.window > 0 && length.total() > limits.window)
    throw io::ConfigError(path + ": 'sliding_window' is " + std::to_string(limits.window) +
                          "; supported: texts of as many tokens, not " +
                          std::to_string(length.total()) + ", the prompt's " + prompt + " and -n " +
                          added + "; lower -n, or shorten the prompt");
  if (length.total() > kMaxTokens)
    throw io::ConfigError(path + ": -n " + added + " and the prompt's " + prompt +
                          " tokens: expected at most " + std::to_string(kMaxTokens) +
                          " tokens together");
}

// Returns the number of tokens that the model sees. Rotations have no weights for positions, so
// that no text has to be cut, as in `transformers`.
std::int64_t context_of(const io::Checkpoint& checkpoint, const std::string& path,
                        std::int64_t stated, const TextLength& length) {
  const auto limits = models::text_limits(checkpoint.model, checkpoint.definition);
  if (!limits || limits->positions > 0)
    return models::is_published_model(path) ? std::min(stated, length.total()) : stated;
  check_length(*limits, path, length);
  return length.total();
}

}  // namespace

std::string model_text(const io::Checkpoint& checkpoint) {
  const std::string model = "model '" + checkpoint.model + "'";
  return checkpoint.dataset.empty() ? model : model + " of data set '" + checkpoint.dataset + "'";
}

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

TextGraph text_graph(const io::Checkpoint& checkpoint, const std::string& path,
                     const TextLength& length) {
  ConfigValues values;
  take_saved_options(options_in(checkpoint, path), values);
  const auto dtype = values.find("dtype");
  models::ModelOptions options = stated_shape(checkpoint, values, path);
  options.sample_shape = {context_of(checkpoint, path, options.sample_shape[0], length)};
  options.definition = checkpoint.definition;
  return {.graph = models::build_model(checkpoint.model, options),
          .dtype = dtype != values.end() && dtype->second.value == "f64" ? engine::DType::kF64
                                                                         : engine::DType::kF32};
}

}  // namespace tools
