// Builds a model from a TOML file: one [[layer]] table per layer, in the order of the parameters in
// checkpoints.
//
//   sample_shape = [28, 28, 1]  for runs without a data set, which otherwise defines it;
//                               text: [context]
//   input_shape = [0, 0, 3]     images of another shape are an error; 0: any extent
//   classes = 10                the same
//   label_shape = [28, 28]      the same, for a class at each position: the logits are [28, 28, 10]
//   logits = "fc"               the layer with the predictions; default: the last one
//   config_json = "{...}"       the settings of the published model that the list was made of
//   file_shapes = {"w.weight" = [8, 5]}   shapes in the ONNX file that the list was made of, if
//   transposed = ["w.weight"]             they are others; those whose transpose is stored
//
//   [[layer]]
//   kind = "conv2d"             required
//   name = "conv1"              required for layers with parameters: "conv1.weight", ...
//   inputs = ["input"]          default: the layer before, or none for kinds that read nothing;
//                               "input" is the sample
//   tied = "wte"                the earlier layer whose parameters it uses; default: its own
//   out_channels = 16           options of the kind: see docs/toml.md
//
// The loss, softmax cross entropy (of each position, if the data have labels of positions) or a
// regression loss, is added after the logits.
#include <map>
#include <optional>
#include <span>
#include <sstream>

#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "io/base/formats/nesting.h"
#include "io/base/formats/toml_parser.h"
#include "io/base/text/text_parts.h"
#include "models/chain.h"
#include "models/layer_kinds.h"
#include "models/model_families.h"
#include "models/onnx_origins/file_layout.h"

namespace models {
namespace {

constexpr std::uint64_t kMaxDefinitionBytes = 1 << 20;
constexpr std::size_t kMaxLayers = 10'000;

Ends begin(engine::Graph& graph, const ModelOptions& options) {
  const engine::Shape& shape = options.sample_shape;
  return shape.rank() == 1
             ? begin_token_model(graph, shape[0], options.label_smoothing, options.label_shape)
             : begin_classifier(graph, options);
}

// Returns true if they have as many classes, and the same positions but for extents of 1.
bool is_alike(const engine::Shape& logits, const engine::Shape& expected) {
  const auto positions = [](const engine::Shape& shape) {
    std::vector<std::int64_t> extents;
    for (int d = 0; d + 1 < shape.rank(); ++d)
      if (shape[d] != 1) extents.push_back(shape[d]);
    return extents;
  };
  if (expected.rank() == 1) return logits == expected;
  return logits.rank() > 0 && logits[logits.rank() - 1] == expected[expected.rank() - 1] &&
         positions(logits) == positions(expected);
}

class Builder {
 public:
  Builder(const std::string& path, const ModelOptions& options)
      : path_(path), options_(options), ends_(begin(graph_, options)), last_(ends_.input) {
    ids_["input"] = ends_.input;
  }

  void add(const toml::table& table) {
    Options options(path_, table);
    const std::optional<std::string> kind = options.text("kind");
    if (!kind) options.refuse("kind", "'kind' is missing");
    const std::string name = options.text("name").value_or("");
    if (ids_.contains(name)) options.refuse("name", "the name '" + name + "' is used twice");
    const auto listed = options.list<std::string>("inputs", "layer names");
    std::vector<engine::NodeId> inputs;
    if (listed)
      for (const std::string& from : *listed) inputs.push_back(find(from, options, "inputs"));
    const auto tied = options.text("tied");
    const engine::NodeId owner = tied ? find(*tied, options, "tied") : -1;
    try {
      engine::LayerPtr layer = make_layer(*kind, options, options_.classes);
      options.refuse_other_keys("a layer of kind '" + *kind + "'");
      if (!listed && layer->traits().reads_inputs) inputs.push_back(last_);
      last_ = owner < 0 ? graph_.add(name, std::move(layer), inputs)
                        : graph_.add_tied(name, std::move(layer), inputs, owner);
    } catch (const engine::ShapeError& error) {
      throw engine::ShapeError(place(path_, table.source()) + error.what());
    } catch (const engine::ModelError& error) {
      const std::string text = error.what();
      const bool names_layer = !path_.ends_with(".onnx") || text.starts_with("layer ");
      const std::string where =
          place(path_, table.source()) + (names_layer ? "" : "layer '" + name + "': ");
      throw engine::ModelError(text.starts_with(path_ + ":") ? text : where + text);
    }
    if (!name.empty()) ids_[name] = last_;
    if (*kind == "softmax" || (*kind == "activation" && options.text("function") == "sigmoid"))
      probabilities_ = last_;
  }

  engine::Graph finish(Options& top) {
    const std::optional<std::string> logits_name = top.text("logits");
    const engine::NodeId logits = logits_name ? find(*logits_name, top, "logits") : last_;
    const engine::Shape& shape = graph_.nodes()[static_cast<std::size_t>(logits)].shape;
    const engine::Shape expected = expected_logits();
    if (!is_alike(shape, expected))
      throw engine::ShapeError(
          path_ + ": " + graph_.describe(logits) + ", which gives the logits: expected shape " +
          expected.to_string() +
          (options_.regression ? " (the targets), got " : " (the classes), got ") +
          shape.to_string());
    const bool takes_probabilities =
        options_.regression && *options_.regression != engine::ops::RegressionLoss::kLogistic;
    if (logits == probabilities_ && !takes_probabilities)
      throw engine::ModelError(path_ + ": " + graph_.describe(logits) +
                               " at the end gives probabilities, expected logits: the loss "
                               "contains it; remove it, or save the network without it");
    end_classifier(graph_, ends_, logits);
    return std::move(graph_);
  }

 private:
  engine::Shape expected_logits() const {
    std::vector<std::int64_t> extents;
    if (options_.label_shape)
      extents.assign(options_.label_shape->dims().begin(), options_.label_shape->dims().end());
    else if (options_.sample_shape.rank() == 1)
      extents.push_back(options_.sample_shape[0]);
    extents.push_back(options_.classes);
    return engine::Shape(std::span<const std::int64_t>(extents));
  }

  engine::NodeId find(const std::string& name, const Options& options, const char* key) const {
    const auto found = ids_.find(name);
    if (found != ids_.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [known, id] : ids_) names.push_back(known);
    options.refuse(key,
                   "no layer '" + name + "' before this one" + base::did_you_mean(name, names));
  }

  const std::string& path_;
  const ModelOptions& options_;
  engine::Graph graph_;
  Ends ends_;
  engine::NodeId last_;
  engine::NodeId probabilities_ = -1;  // the last layer that computes them
  std::map<std::string, engine::NodeId> ids_;
};

std::string pixels_text(std::int64_t height, std::int64_t width) {
  return std::to_string(height) + " x " + std::to_string(width);
}

// `read`: the images of an ONNX file's network, [height, width, channels], 0: any. Its layers may
// accept others, and compute with places and sizes that do not fit them.
void check_images(const std::string& path, const std::optional<std::vector<std::int64_t>>& read,
                  const engine::Shape& sample) {
  if (!read || read->size() != 3 || sample.rank() != 3) return;
  const auto differs = [&](int i) {
    const std::int64_t wanted = (*read)[static_cast<std::size_t>(i)];
    return wanted > 0 && wanted != sample[i];
  };
  if (differs(2))
    throw engine::ModelError(path + ": reads images of " + std::to_string((*read)[2]) +
                             ((*read)[2] == 1 ? " channel" : " channels") +
                             "; the samples of the data set have " + std::to_string(sample[2]) +
                             ", " + sample.to_string());
  const std::string own = pixels_text(sample[0], sample[1]);
  if (differs(0) || differs(1))
    throw engine::ModelError(path + ": its layers depend on the image size in the file, " +
                             pixels_text((*read)[0], (*read)[1]) + "; the data set has images of " +
                             own + "; export the network for " + own +
                             ", or with dynamic axes for height and width");
}

// The layers of an ONNX file's network fit token ids of its own length alone, or images; a layer's
// shape error would not explain that.
void check_samples(const std::string& path, const std::optional<std::vector<std::int64_t>>& stated,
                   const engine::Shape& sample) {
  if (!path.ends_with(".onnx")) return;
  const bool reads_tokens = stated && stated->size() == 1;
  if (!reads_tokens && sample.rank() == 1)
    throw engine::ModelError(path + ": reads images or rows of numbers; the data set has " +
                             sample.to_string() + " token ids per sample");
  if (!reads_tokens || (sample.rank() == 1 && sample[0] == stated->front())) return;
  const std::string expected = path + ": reads " + std::to_string(stated->front()) +
                               " token ids per sample; the data set has ";
  if (sample.rank() != 1)
    throw engine::ModelError(expected + "samples of shape " + sample.to_string());
  throw engine::ModelError(expected + std::to_string(sample[0]) + " (--context for texts)");
}

// `text` is the contents of the file; "": the file is read.
toml::table parse(const std::string& path, const std::string& text = {}) {
  const std::string content = text.empty() ? model_definition(path) : text;
  if (content.size() > kMaxDefinitionBytes)
    throw engine::ModelError(path + ": its list of layers has " + std::to_string(content.size()) +
                             " bytes; expected at most " + std::to_string(kMaxDefinitionBytes));
  if (!io::toml_nests_within_limit(content))
    throw engine::ModelError(path + ": nests more than " + std::to_string(io::kMaxNesting) +
                             " levels deep; expected [[layer]] tables");
  if (const auto line = io::line_of_stray_toml_character(content))
    throw engine::ModelError(path + ":" + std::to_string(*line) +
                             ": not TOML: a character outside of strings is not ASCII");
  try {
    return toml::parse(content, path);
  } catch (const toml::parse_error& error) {
    if (error.source().begin.line == 0)
      throw engine::ModelError(path + ": " + std::string(error.description()));
    fail(path, error.source(), std::string(error.description()));
  }
}

}  // namespace

std::string read_layer_list(const std::string& path) {
  try {
    return io::read_small_file(path, kMaxDefinitionBytes);
  } catch (const io::Error& error) {
    throw engine::ModelError(error.what());
  }
}

engine::Graph build_layer_list(const std::string& path, const ModelOptions& options) {
  const toml::table file = parse(path, options.definition);
  Options top(path, file);
  check_samples(path, top.list<std::int64_t>("sample_shape", "integers"), options.sample_shape);
  check_images(path, top.list<std::int64_t>("input_shape", "integers"), options.sample_shape);
  top.integer("classes", 0);
  top.list<std::int64_t>("label_shape", "integers");
  top.allow("logits");
  top.allow("layer");
  top.text("config_json");
  top.allow("file_shapes");
  top.allow("transposed");
  top.refuse_other_keys("the file");
  const toml::array* list = file["layer"].as_array();
  if (list == nullptr || list->empty())
    throw engine::ModelError(path + ": expected at least one [[layer]] table");
  if (list->size() > kMaxLayers)
    throw engine::ModelError(path + ": lists " + std::to_string(list->size()) +
                             " layers; expected at most " + std::to_string(kMaxLayers));
  Builder builder(path, options);
  for (const toml::node& node : *list) {
    if (!node.is_table())
      fail(path, node.source(), "'layer' must be a list of tables: write [[layer]]");
    builder.add(*node.as_table());
  }
  return builder.finish(top);
}

std::vector<std::string> definition_lines(const std::string& name, const std::string& text) {
  const auto line = [](const toml::table& table) {
    std::ostringstream out;
    for (const auto& [key, value] : table) {
      out << (out.tellp() > 0 ? ", " : "") << key.str() << " = ";
      if (const auto number = value.value_exact<double>())
        out << base::shortest_text(*number);
      else
        out << toml::default_formatter{value};
    }
    return out.str();
  };
  toml::table file = parse(name, text);
  const toml::array layers = file["layer"].is_array() ? *file["layer"].as_array() : toml::array{};
  for (const char* key : {"layer", "file_shapes", "transposed"}) file.erase(key);
  std::vector<std::string> lines{line(file)};
  for (const toml::node& layer : layers)
    lines.push_back(layer.is_table() ? line(*layer.as_table()) : "not a table");
  return lines;
}

std::string layer_list_config(const std::string& name, const std::string& text) {
  const toml::table file = parse(name, text);
  return Options(name, file).text("config_json").value_or("");
}

FileLayouts file_layouts(const std::string& name, const std::string& definition) {
  FileLayouts layouts;
  if (definition.empty() && !name.ends_with(".onnx")) return layouts;
  const toml::table file = parse(name, definition);
  Options top(name, file);
  layouts.classes = top.integer("classes", 0);
  if (const toml::table* shapes = file["file_shapes"].as_table(); shapes != nullptr)
    for (const auto& [array, shape] : *shapes)
      layouts.arrays[std::string(array.str())].shape =
          Options(name, *shapes).integers(std::string(array.str()));
  for (const std::string& array :
       top.list<std::string>("transposed", "names").value_or(std::vector<std::string>{})) {
    FileLayout& layout = layouts.arrays[array];
    layout.transposed = true;
    if (layout.shape.size() != 2)
      throw engine::ModelError(name + ": 'transposed' names '" + array +
                               "', which has no two dimensions in file_shapes");
  }
  return layouts;
}

ModelOptions layer_list_options(const std::string& path, const std::string& text) {
  const toml::table file = parse(path, text);
  Options top(path, file);
  const auto shape = top.list<std::int64_t>("sample_shape", "integers");
  if (!shape || (shape->size() != 3 && shape->size() != 1))
    throw engine::ModelError(path +
                             ": without a data set the file must say sample_shape = [height, "
                             "width, channels], or [context]");
  const auto labels = top.list<std::int64_t>("label_shape", "integers");
  return {.sample_shape = engine::Shape(*shape),
          .classes = top.integer("classes"),
          .label_shape = labels ? std::optional(engine::Shape(*labels)) : std::nullopt};
}

}  // namespace models
