// The catalog of models by name.
#include "models/model_catalog.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>

#include "io/base/text/nearest.h"
#include "io/base/text/text_parts.h"
#include "models/model_families.h"
#include "models/onnx_import/onnx_import.h"
#include "models/published/foreign_folder.h"
#include "models/published/published_layers.h"
#include "models/published/published_model.h"

namespace models {
namespace {

struct CatalogEntry {
  const char* name;
  engine::Graph (*build)(const ModelOptions& options);
  std::array<std::int64_t, 3> sample_shape;  // the shape that the model was made for; for text:
                                             // context, 0, 0
  std::int64_t classes;
  bool text = false;  // reads token ids and supports dropout
};

constexpr CatalogEntry kCatalog[] = {
    {"mlp", build_mlp, {28, 28, 1}, 10},
    {"convnet", build_convnet, {28, 28, 1}, 10},
    {"resnet18", build_resnet18, {224, 224, 3}, 1000},
    {"resnet34", build_resnet34, {224, 224, 3}, 1000},
    {"resnet50", build_resnet50, {224, 224, 3}, 1000},
    {"resnet101", build_resnet101, {224, 224, 3}, 1000},
    {"resnet152", build_resnet152, {224, 224, 3}, 1000},
    {"resnet18-cifar", build_resnet18_cifar, {32, 32, 3}, 10},
    {"resnet50-cifar", build_resnet50_cifar, {32, 32, 3}, 10},
    {"resnet20-cifar", build_resnet20_cifar, {32, 32, 3}, 10},
    {"resnet56-cifar", build_resnet56_cifar, {32, 32, 3}, 10},
    {"pyramidnet110", build_pyramidnet110, {32, 32, 3}, 10},
    {"mingpt", build_gpt_nano, {64, 0, 0}, 65, true},
    {"gpt-nano", build_gpt_nano, {64, 0, 0}, 65, true},
    {"gpt-mini", build_gpt_mini, {128, 0, 0}, 65, true},
    {"gpt2", build_gpt2, {1024, 0, 0}, 50257, true},
};

// Only mlp reads rows of numbers, [1, 1, columns]; a layer's shape error would not explain that.
void check_no_rows(const std::string& name, const engine::Shape& sample) {
  if (name == "mlp" || sample.rank() != 3 || sample[0] != 1 || sample[1] != 1) return;
  throw engine::ModelError("the model '" + name + "' takes images, but each sample is a row of " +
                           std::to_string(sample[2]) +
                           " numbers, as --dataset csv has them; use --model mlp, or a list of "
                           "layers (FILE.toml)");
}

// They predict one class, or the next token.
void check_label_shape(const std::string& name, const ModelOptions& options) {
  if (!options.label_shape) return;
  const bool by_position = options.label_shape->rank() > 0;
  if (!by_position && options.sample_shape.rank() == 3) return;
  throw engine::ModelError(
      "the model '" + name + "' does not fit " +
      (by_position ? "labels of the shape " + options.label_shape->to_string() + " per sample"
                   : "token ids with one label per sample (integers of two dimensions are read as "
                     "token ids: save numbers as floats, x.astype('float32'))") +
      ": expected a list of layers (FILE.toml) or a network (FILE.onnx) whose output has a "
      "score for each class" +
      (by_position ? " at each position" : "") +
      (options.label_shape->rank() == 1
           ? "; if each sample has one class, save y in one dimension: y.ravel(), or y.argmax(1)"
           : ""));
}

bool is_built_in(const std::string& name) {
  return std::ranges::any_of(kCatalog,
                             [&](const CatalogEntry& entry) { return name == entry.name; });
}

bool is_onnx(const std::string& name) { return name.ends_with(".onnx"); }

// A folder of Hugging Face. A built-in model has precedence: "./gpt2" is a folder of that name.
bool is_published(const std::string& name) {
  std::error_code unknown;
  return !is_built_in(name) && !name.ends_with(".toml") && !is_onnx(name) &&
         std::filesystem::is_directory(name, unknown);
}

bool is_file(const std::string& name) { return name.ends_with(".toml") || has_weights(name); }

// A longer text would need weights for more positions, or attention over a window.
void check_length(const std::string& name, const ModelOptions& options) {
  if (options.sample_shape.rank() != 1) return;
  const auto config = published_config_of(name, options.definition);
  if (!config) return;
  const std::int64_t tokens = options.sample_shape[0];
  const auto check = [&](const char* setting, std::int64_t most) {
    if (tokens > most)
      throw engine::ModelError(name + "/config.json: '" + setting + "' is " + std::to_string(most) +
                               "; supported: texts of as many tokens, not " +
                               std::to_string(tokens) + " (--context)");
  };
  if (config->family == PublishedFamily::kGpt2) check("n_positions", config->context);
  if (config->window > 0) check("sliding_window", config->window);
}

const CatalogEntry& find(const std::string& name) {
  for (const CatalogEntry& entry : kCatalog)
    if (name == entry.name) return entry;
  if (const std::string what = foreign_file_text(name); !what.empty())
    throw engine::ModelError(name + ": " + what);
  if (name.find('/') != name.npos) throw engine::ModelError("there is no model " + name);
  throw engine::ModelError(
      "unknown model '" + name + "'" + base::did_you_mean(name, model_names()) +
      " (known: " + base::join_text(model_names()) +
      ", FILE.toml for a list of layers, FILE.onnx, or a folder with config.json)");
}

}  // namespace

engine::Graph build_model(const std::string& name, const ModelOptions& options) {
  if (options.classes < 1)
    throw engine::ModelError("a model needs at least 1 class, not " +
                             std::to_string(options.classes));
  const bool is_list = !options.definition.empty() || is_file(name);
  if (options.dropout != 0 && (is_list || !find(name).text))
    throw engine::ModelError(
        "--dropout " + base::shortest_text(options.dropout) + " for the model '" + name +
        "': only mingpt, gpt-nano, gpt-mini and gpt2 take it; a list of layers names its own");
  if (options.regression && options.label_smoothing != 0)
    throw engine::ModelError("label smoothing " + std::to_string(options.label_smoothing) +
                             " for a model that predicts numbers: only classes have it");
  if (options.regression && options.sample_shape.rank() != 3)
    throw engine::ModelError(
        "a model that predicts numbers reads images or rows of numbers, [h, "
        "w, c], not samples of shape " +
        options.sample_shape.to_string() + " (token ids)");
  check_length(name, options);
  if (is_list) return build_layer_list(name, options);
  const CatalogEntry& entry = find(name);
  check_label_shape(name, options);
  if (!entry.text) check_no_rows(name, options.sample_shape);
  return entry.build(options);
}

std::string model_definition(const std::string& name, DefinitionNotes* notes) {
  if (!is_file(name)) return "";
  if (!has_weights(name)) return read_layer_list(name);
  if (is_published(name)) {
    PublishedConfig config = read_published_config(name);
    std::string definition = published_layers(config).definition;
    if (notes != nullptr) notes->lines = std::move(config.notes);
    if (std::string adapter = unused_adapter_text(name); notes != nullptr && !adapter.empty())
      notes->lines.push_back(std::move(adapter));
    return definition;
  }
  OnnxImport import = import_onnx(io::OnnxReader(name), OnnxArrays::kSkip);
  if (notes != nullptr)
    *notes = {std::move(import.notes), import.leaves_out_softmax,
              std::move(import.probability_note)};
  return std::move(import.definition);
}

bool has_weights(const std::string& name) { return is_onnx(name) || is_published(name); }

bool is_published_model(const std::string& path) {
  std::error_code unknown;
  return std::filesystem::is_regular_file(path + "/config.json", unknown);
}

std::string unused_adapter_text(const std::string& folder) {
  std::error_code unknown;
  return std::filesystem::exists(folder + "/adapter_config.json", unknown)
             ? "adapter_config.json is not used; the weights are those of the base model"
             : "";
}

std::optional<TokenCounts> token_counts(const std::string& name) {
  std::error_code unknown;
  if (is_onnx(name) && std::filesystem::exists(name, unknown)) {
    const auto text = import_onnx(io::OnnxReader(name), OnnxArrays::kSkip).text;
    if (!text) return std::nullopt;
    return TokenCounts{.vocabulary = text->vocabulary, .context = text->length, .is_fixed = true};
  }
  if (!is_published(name)) return std::nullopt;
  const PublishedConfig config = read_published_config(name);
  return TokenCounts{.vocabulary = config.vocabulary, .context = config.context};
}

bool is_of_published_model(const std::string& name, const std::string& definition) {
  return !definition.empty() && !layer_list_config(name, definition).empty();
}

std::optional<PublishedConfig> published_config_of(const std::string& name,
                                                   const std::string& definition) {
  const std::string text = definition.empty() ? "" : layer_list_config(name, definition);
  if (!text.empty()) return parse_published_config(text, name + "/config.json");
  return is_published(name) ? std::optional(read_published_config(name)) : std::nullopt;
}

std::vector<std::int64_t> generation_ends(const std::string& folder) {
  return is_published(folder) ? read_generation_ends(folder) : std::vector<std::int64_t>{};
}

std::vector<std::int64_t> end_tokens(const std::string& name, const std::string& definition) {
  const std::string config = definition.empty() ? "" : layer_list_config(name, definition);
  if (config.empty()) return {};
  return parse_published_config(config, name + ": config_json").ends;
}

ModelWeights model_weights(const std::string& name) {
  if (is_published(name)) return {.arrays = read_published_weights(name), .heads = {}};
  OnnxImport import = import_onnx(io::OnnxReader(name), OnnxArrays::kLoad);
  return {.arrays = std::move(import.arrays), .heads = std::move(import.heads)};
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : kCatalog) names.emplace_back(entry.name);
  return names;
}

ModelOptions default_options(const std::string& name) {
  if (is_file(name)) return layer_list_options(name);
  const CatalogEntry& entry = find(name);
  const auto rank = entry.text ? std::size_t{1} : entry.sample_shape.size();
  return {.sample_shape = engine::Shape(std::span(entry.sample_shape).first(rank)),
          .classes = entry.classes};
}

}  // namespace models
