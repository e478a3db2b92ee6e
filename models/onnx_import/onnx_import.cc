// Writes the layers that the output depends on as TOML text, and loads their parameters.
#include "models/onnx_import/onnx_import.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "engine/core/error.h"
#include "io/interchange/array_files.h"
#include "models/onnx_import/onnx_nodes.h"

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

// Lets the last layer with a weight have as many outputs as there are classes. Returns its name; ""
// if another layer follows it that has the file's number of classes.
std::string open_head(OnnxLayerList& layers, const OnnxActivation& output) {
  constexpr const char* kPassed[] = {
      "relu",       "gelu",           "activation",          "dropout", "flatten",
      "max_pool2d", "average_pool2d", "global_average_pool", "resize"};
  const std::string classes = std::to_string(output.shape[1]);
  int at = output.layer;
  while (at >= 0 && std::ranges::find(kPassed, layers.at(at).kind) != std::end(kPassed))
    at = layers.at(at).inputs[0];
  if (at < 0) return "";
  OnnxListedLayer& head = layers.at(at);
  const bool is_shared = std::ranges::any_of(
      layers.all(), [&](const OnnxListedLayer& other) { return other.tied == head.name; });
  if (!head.tied.empty() || is_shared) return "";
  for (auto& [key, value] : head.options)
    if ((key == "out" || key == "out_channels") && value == classes) {
      value = "\"classes\"";
      return head.name;
    }
  return "";
}

// [h, w, c]; empty: chosen when the model runs.
std::vector<std::int64_t> sample_shape_of(const io::ReadValue& input) {
  const std::vector<std::int64_t>& shape = input.shape;
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

std::string definition_of(const OnnxTranslation& all, const OnnxActivation& output,
                          const std::vector<bool>& needed) {
  const std::vector<std::int64_t> sample = sample_shape_of(all.graph.inputs[0]);
  std::string text = extents_text("sample_shape", sample);
  if (!sample.empty()) text += extents_text("label_shape", label_shape_of(output));
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

}  // namespace

OnnxImport import_onnx(const io::OnnxReader& file, OnnxArrays arrays) {
  OnnxTranslation all(file);
  const OnnxActivation output = translate_nodes(all);
  const std::vector<bool> needed = needed_layers(all.layers, output.layer);
  OnnxImport result;
  result.head = open_head(all.layers, output);
  result.definition = definition_of(all, output, needed);
  result.notes = std::move(all.notes);
  if (result.head.empty())
    result.notes.push_back("no last layer can be replaced: the data must have " +
                           std::to_string(output.shape[1]) + " classes");
  if (all.folded_norms > 0)
    result.notes.push_back(
        std::to_string(all.folded_norms) +
        " batch norms are folded into convolutions, as PyTorch exports a model in eval mode: they "
        "are not trained; export with training=TrainingMode.TRAINING to keep them");
  for (std::size_t i = 0; i < needed.size() && arrays == OnnxArrays::kLoad; ++i)
    for (const OnnxLayerArray& array : all.layers.all()[i].arrays)
      if (needed[i]) result.arrays.push_back(array_of(file, all.layers.all()[i], array));
  return result;
}

}  // namespace models
