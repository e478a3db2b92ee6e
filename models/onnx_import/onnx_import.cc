// Writes the layers that the output depends on as TOML text, and loads their parameters.
#include "models/onnx_import/onnx_import.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <unordered_set>

#include "engine/core/error.h"
#include "io/base/text/text_parts.h"
#include "io/interchange/array_files.h"
#include "models/onnx_import/onnx_nodes.h"
#include "models/onnx_parameters/onnx_heads.h"
#include "models/onnx_parameters/onnx_merged_modules.h"
#include "models/onnx_parameters/onnx_parameter_notes.h"
#include "models/onnx_parameters/onnx_sharing.h"
#include "models/onnx_tokens/onnx_masks.h"

namespace models {
namespace {

std::vector<bool> needed_layers(const OnnxLayerList& layers, int output) {
  std::vector<bool> needed(layers.all().size());
  needed.at(static_cast<std::size_t>(output)) = true;
  for (std::size_t i = needed.size(); i-- > 0;) {
    if (!needed[i]) continue;
    const OnnxListedLayer& layer = layers.all()[i];
    for (const int from : layer.inputs)
      if (from >= 0) needed[static_cast<std::size_t>(from)] = true;
    for (std::size_t owner = 0; owner < i && !layer.tied.empty(); ++owner)
      if (layers.all()[owner].name == layer.tied) needed[owner] = true;
  }
  return needed;
}

// [h, w, c], or [length] of token ids; empty: chosen when the model runs.
std::vector<std::int64_t> sample_shape_of(const OnnxTranslation& all) {
  if (all.tokens > 0) return {all.tokens};
  const std::vector<std::int64_t>& shape = all.graph.inputs[0].shape;
  if (shape.size() == 2) return {1, 1, shape[1]};
  if (shape[2] < 1 || shape[3] < 1) return {};
  return {shape[2], shape[3], shape[1]};
}

// Returns the positions of the last map, [h, w] or [length]; empty: it has one label, or extents
// that are chosen when the model runs.
std::vector<std::int64_t> label_shape_of(const OnnxActivation& output) {
  if (output.layout == OnnxActivation::Layout::kVector) return {};
  const std::vector<std::int64_t> extents(output.shape.begin() + 2, output.shape.end());
  const bool known = std::ranges::all_of(extents, [](std::int64_t extent) { return extent > 0; });
  return known ? extents : std::vector<std::int64_t>{};
}

std::string extents_text(const std::string& key, const std::vector<std::int64_t>& extents) {
  std::string text;
  for (const std::int64_t extent : extents)
    text += (text.empty() ? key + " = [" : ", ") + std::to_string(extent);
  return text.empty() ? "" : text + "]\n";
}

// The images that the network reads: [height, width, channels], 0: any.
std::string input_text(const OnnxTranslation& all, bool is_any_size) {
  const std::vector<std::int64_t>& shape = all.graph.inputs[0].shape;
  if (all.tokens > 0 || shape.size() != 4) return "";
  const auto extent = [&](std::size_t i) {
    return is_any_size ? 0 : std::max<std::int64_t>(0, shape[i]);
  };
  return extents_text("input_shape", {extent(2), extent(3), shape[1]});
}

std::string layer_text(const OnnxLayerList& layers, const OnnxListedLayer& layer) {
  std::string inputs;
  for (const int from : layer.inputs)
    inputs += (inputs.empty() ? "\"" : ", \"") + (from < 0 ? "input" : layers.at(from).name) + "\"";
  std::string text = "\n[[layer]]\nkind = \"" + layer.kind + "\"\nname = \"" + layer.name +
                     "\"\ninputs = [" + inputs + "]\n";
  for (const auto& [key, value] : layer.options) text += key + " = " + value + "\n";
  if (!layer.tied.empty()) text += "tied = \"" + layer.tied + "\"\n";
  return text;
}

// The arrays that the file has in another shape than the layers, and those whose transpose they
// store. A tensor that the exporter has computed, e.g. a transposed copy, says nothing about the
// parameter that it has the name of.
std::string file_layout_text(const OnnxTranslation& all, const std::vector<bool>& needed) {
  std::string shapes, transposed;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const OnnxListedLayer& layer = all.layers.all()[i];
    for (const OnnxLayerArray& array : layer.arrays) {
      const OnnxConstant& from = array.from;
      if (!needed[i] || from.tensor == nullptr) continue;
      const bool is_in_order = from.computation == OnnxComputation::kShared;
      if (!is_in_order && !all.origins.has_layout_of_module(*from.tensor)) continue;
      if (!from.transposed && from.tensor->shape == array.shape) continue;
      const std::string name = "\"" + layer.name + "." + array.name + "\"";
      shapes += (shapes.empty() ? "" : ", ") + name + " = " + base::shape_text(from.tensor->shape);
      if (from.transposed) transposed += (transposed.empty() ? "" : ", ") + name;
    }
  }
  return (shapes.empty() ? "" : "file_shapes = {" + shapes + "}\n") +
         (transposed.empty() ? "" : "transposed = [" + transposed + "]\n");
}

struct TranslatedGraph {
  std::unique_ptr<OnnxTranslation> all;
  OnnxActivation output;
  std::vector<bool> needed;  // layers
};

// `is_any_size`: the network reads images of any height and width.
std::string definition_of(const TranslatedGraph& graph, bool is_any_size) {
  const auto& [translation, output, needed] = graph;
  const OnnxTranslation& all = *translation;
  const std::vector<std::int64_t> sample = sample_shape_of(all);
  std::string text = extents_text("sample_shape", sample) + input_text(all, is_any_size);
  if (!sample.empty()) text += extents_text("label_shape", label_shape_of(output));
  if (all.tokens > 0 && output.shape.size() == 2) text += "label_shape = []\n";
  text += file_layout_text(all, needed);
  text += "classes = " + std::to_string(output.shape[1]) + "\nlogits = \"" +
          all.layers.at(output.layer).name + "\"\n";
  for (std::size_t i = 0; i < needed.size(); ++i)
    if (needed[i]) text += layer_text(all.layers, all.layers.all()[i]);
  return text;
}

// In f32 if that has the same numbers, else in f64.
void set_values(const std::vector<double>& values, io::NamedArray& array) {
  const std::vector<float> narrow(values.begin(), values.end());
  const bool is_exact = std::ranges::equal(
      values, narrow, [](double a, float b) { return a == static_cast<double>(b); });
  const auto bytes = is_exact ? std::as_bytes(std::span(narrow)) : std::as_bytes(std::span(values));
  array.type = is_exact ? io::DType::kF32 : io::DType::kF64;
  array.data.assign(bytes.begin(), bytes.end());
}

bool is_all_of(const OnnxLayerArray& array, double number) {
  return array.from.tensor == nullptr && !array.values.empty() &&
         std::ranges::all_of(array.values, [&](double value) { return value == number; });
}

// Norms with ones and zeros in the place of parameters have none.
void leave_out_neutral_parameters(OnnxLayerList& layers) {
  std::unordered_set<std::string> without;  // names of such norms
  for (int i = 0; i < std::ssize(layers.all()); ++i) {
    OnnxListedLayer& layer = layers.at(i);
    if (without.contains(layer.tied)) layer.options.emplace_back("affine", "false");
    if ((layer.kind != "group_norm" && layer.kind != "batch_norm2d") || layer.arrays.size() < 2 ||
        !is_all_of(layer.arrays[0], 1) || !is_all_of(layer.arrays[1], 0))
      continue;
    layer.options.emplace_back("affine", "false");
    layer.arrays.erase(layer.arrays.begin(), layer.arrays.begin() + 2);
    without.insert(layer.name);
  }
}

io::NamedArray array_of(const io::OnnxReader& file, const OnnxListedLayer& layer,
                        const OnnxLayerArray& wanted) {
  io::NamedArray array;
  if (wanted.from.tensor != nullptr) {
    array = file.load(*wanted.from.tensor);
    if (!base::is_floating(array.type))
      throw engine::ModelError(file.name() + ": '" + array.name + "', the " + wanted.name +
                               " of layer '" + layer.name + "', has type " +
                               std::string(to_string(array.type)) + ", expected floats");
    if (wanted.from.transposed) array = io::transposed(std::move(array));
  } else if (wanted.values.empty()) {
    array.data.resize(static_cast<std::size_t>(wanted.shape[0]) * sizeof(float));
  } else {
    set_values(wanted.values, array);
  }
  array.shape = wanted.shape;
  array.name = layer.name + "." + wanted.name;
  array.section = layer.kind == "constant" ? io::Section::kBuffer : io::section_of_name(array.name);
  return array;
}

// Whether the layer keeps a limited range limited: apart from constants, it reads one value.
bool keeps_range(const OnnxListedLayer& layer) {
  constexpr const char* kKinds[] = {"scale_shift", "relu", "dropout",  "reshape",  "flatten",
                                    "permute",     "add",  "subtract", "multiply", "divide"};
  if (layer.kind == "activation") return layer.options.at(0).second == "\"clip\"";
  return std::ranges::find(kKinds, layer.kind) != std::end(kKinds);
}

bool gives_probabilities(const OnnxListedLayer& layer) {
  return layer.kind == "softmax" ||
         (layer.kind == "activation" && layer.options.at(0).second == "\"sigmoid\"");
}

// Returns a note if the output consists of probabilities, apart from factors, shifts and limits.
std::string probability_note(const OnnxLayerList& layers, int output) {
  std::vector<int> source(layers.all().size(), -1);  // the layer that gives probabilities
  for (int i = 0; i <= output; ++i) {
    const OnnxListedLayer& layer = layers.at(i);
    int& own = source[static_cast<std::size_t>(i)];
    if (gives_probabilities(layer)) own = i;
    if (own >= 0 || !keeps_range(layer)) continue;
    for (const int from : layer.inputs) {
      if (from >= 0 && layers.at(from).kind == "constant") continue;
      own = from < 0 ? -1 : source[static_cast<std::size_t>(from)];
      if (own < 0) break;
    }
  }
  const int found = source[static_cast<std::size_t>(output)];
  if (found < 0 || found == output) return "";  // the list of layers rejects it at the end
  return "warning: its output is computed from the probabilities of layer '" +
         layers.at(found).name +
         "', but the loss expects logits and contains this function: save the network without it";
}

// Again if several layers read a parameter in different ways: it is a layer of its own then.
TranslatedGraph translate_graph(const io::OnnxReader& file, OnnxReading how) {
  while (true) {
    TranslatedGraph graph{std::make_unique<OnnxTranslation>(file, how, constant_masks(file),
                                                            with_separate_modules(file.graph())),
                          {},
                          {}};
    graph.output = translate_nodes(*graph.all);
    graph.needed = needed_layers(graph.all->layers, graph.output.layer);
    if (separate_parameters(*graph.all, graph.needed, how.apart)) continue;
    leave_out_neutral_parameters(graph.all->layers);
    return graph;
  }
}

// Whether the layer names no extent and no place along height or width.
bool names_no_size(const OnnxListedLayer& layer) {
  constexpr const char* kKinds[] = {"conv2d",     "conv_transpose", "batch_norm2d",
                                    "group_norm", "layer_norm",     "relu",
                                    "gelu",       "activation",     "dropout",
                                    "max_pool2d", "average_pool2d", "global_average_pool",
                                    "pad",        "pad_channels",   "shuffle_channels",
                                    "add",        "subtract",       "multiply",
                                    "divide",     "scale_shift"};
  const bool has_axis =
      std::ranges::any_of(layer.options, [](const auto& option) { return option.first == "axis"; });
  if (layer.kind == "slice" || layer.kind == "concat") return !has_axis;  // channels
  return layer.kind == "dense" || std::ranges::find(kKinds, layer.kind) != std::end(kKinds);
}

// Whether the file has the layers of `definition`, which has no height and width, at another size.
bool has_layers_at(const io::OnnxReader& file, const OnnxSize& size,
                   const std::string& definition) {
  const auto layers_of = [](const std::string& text) {
    return text.substr(text.find("classes = "));
  };
  try {
    const TranslatedGraph graph = translate_graph(file, {.apart = {}, .size = size});
    open_heads(graph.all->layers, graph.needed, graph.output);
    return layers_of(definition_of(graph, /*is_any_size=*/true)) == layers_of(definition);
  } catch (const engine::ModelError&) {
    return false;
  }
}

// Returns whether nothing in the network was computed from the height and width that the file has:
// it has the same layers if these are open. Some are translated only if they are known, e.g. norms
// of groups: the same layers at two other sizes, none of which names a place or an extent.
bool is_same_at_any_size(const io::OnnxReader& file, const TranslatedGraph& fixed,
                         const std::string& definition) {
  const std::vector<std::int64_t>& shape = fixed.all->graph.inputs[0].shape;
  const std::int64_t height = shape[2], width = shape[3];
  if (std::max(height, width) > (1 << 16)) return false;
  if (has_layers_at(file, {kOnnxUnknown, kOnnxUnknown}, definition)) return true;
  for (std::size_t i = 0; i < fixed.needed.size(); ++i)
    if (fixed.needed[i] && !names_no_size(fixed.all->layers.all()[i])) return false;
  return has_layers_at(file, {2 * height + 1, 2 * width + 1}, definition) &&
         has_layers_at(file, {2 * height + 6, 2 * width + 10}, definition);
}

bool has_fixed_size(const OnnxTranslation& all) {
  const std::vector<std::int64_t>& shape = all.graph.inputs[0].shape;
  return all.tokens == 0 && shape.size() == 4 && shape[2] > 0 && shape[3] > 0;
}

}  // namespace

OnnxImport import_onnx(const io::OnnxReader& file, OnnxArrays arrays) {
  TranslatedGraph graph = translate_graph(file, {});
  OnnxTranslation& all = *graph.all;
  const OnnxActivation& output = graph.output;
  const std::vector<bool>& needed = graph.needed;
  OnnxImport result;
  result.heads = open_heads(all.layers, needed, output);
  result.definition = definition_of(graph, false);
  if (has_fixed_size(all) && is_same_at_any_size(file, graph, result.definition))
    result.definition = definition_of(graph, true);
  result.notes = std::move(all.notes);
  result.leaves_out_softmax = all.ends_in_softmax;
  result.probability_note = probability_note(all.layers, output.layer);
  if (all.tokens > 0)
    result.text = {.length = all.tokens,
                   .vocabulary = output.shape.size() > 2 ? output.shape[1] : 0};
  if (result.heads.empty())
    result.notes.push_back("no last layer can be replaced: the data must have " +
                           std::to_string(output.shape[1]) + " classes");
  note_parameters(all, needed, result.notes);
  note_folded_norms(all, result.notes);
  for (std::size_t i = 0; i < needed.size() && arrays == OnnxArrays::kLoad; ++i)
    for (const OnnxLayerArray& array : all.layers.all()[i].arrays)
      if (needed[i]) result.arrays.push_back(array_of(file, all.layers.all()[i], array));
  return result;
}

}  // namespace models
