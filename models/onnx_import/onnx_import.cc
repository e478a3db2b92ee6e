// Writes the layers that the output depends on as TOML text, and loads their parameters.
#include "models/onnx_import/onnx_import.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <unordered_set>

#include "engine/core/error.h"
#include "io/base/text/text_parts.h"
#include "io/interchange/array_files.h"
#include "models/onnx_import/onnx_nodes.h"
#include "models/onnx_import/onnx_operator.h"
#include "models/onnx_origins/onnx_calls.h"

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
  const std::vector<std::int64_t> sample = sample_shape_of(all);
  std::string text = extents_text("sample_shape", sample);
  if (!sample.empty()) text += extents_text("label_shape", label_shape_of(output));
  if (all.tokens > 0 && output.shape.size() == 2) text += "label_shape = []\n";
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
  for (int i = 0; i < std::ssize(layers.all()); ++i) {
    OnnxListedLayer& layer = layers.at(i);
    if ((layer.kind != "group_norm" && layer.kind != "batch_norm2d") || layer.arrays.size() < 2 ||
        !is_all_of(layer.arrays[0], 1) || !is_all_of(layer.arrays[1], 0))
      continue;
    layer.options.emplace_back("affine", "false");
    layer.arrays.erase(layer.arrays.begin(), layer.arrays.begin() + 2);
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

constexpr std::size_t kMaxShown = 8;  // names of a note

// The first names, and how many others there are.
std::string listed(const std::vector<std::string>& names) {
  std::vector<std::string> shown = names;
  shown.resize(std::min(names.size(), kMaxShown));
  const std::string rest =
      names.size() > kMaxShown ? " and " + std::to_string(names.size() - kMaxShown) + " more" : "";
  return base::join_text(shown) + rest;
}

std::string freeze_option(const std::vector<std::string>& names) {
  return names.size() > kMaxShown ? "--freeze NAME,..."
                                  : "--freeze '" + base::join_text(names, ",") + "'";
}

// Whether the name says that a module trains it: "weight_g", "in_proj_bias".
bool is_usual_parameter(const std::string& name) {
  const std::string last = name.substr(name.rfind('.') + 1);
  return last.find("weight") != std::string::npos || last.find("bias") != std::string::npos;
}

// Parameters of the layers by what the user should know of them.
struct OnnxParameterLists {
  std::vector<std::string> assumed;   // may be buffers: the file does not tell
  std::vector<std::string> buffers;   // are none in PyTorch
  std::vector<std::string> computed;  // by the exporter, from parameters
};

void add_to_lists(const OnnxTranslation& all, const OnnxListedLayer& layer,
                  const OnnxLayerArray& array, OnnxParameterLists& lists) {
  const std::string name = layer.name + "." + array.name;
  if (array.from.tensor == nullptr || layer.kind == "constant" ||
      io::section_of_name(name) == io::Section::kBuffer)
    return;
  const std::string& stored = array.from.tensor->name;
  if (!is_trained_weight(array.from))
    lists.buffers.push_back(name);
  else if (!all.origins.are_known() && !all.origins.is_anonymous(stored) &&
           !is_usual_parameter(stored))
    lists.assumed.push_back(name);
  else if (const auto sources = all.origins.parameters_in(stored);
           sources.size() > (layer.kind == "parameter" ? 0 : 1) && array.from.alias.empty())
    lists.computed.push_back(name + " (from " + base::join_text(sources) + ")");
}

// The parameters of the signature that are in a layer or in another list.
std::unordered_set<std::string> known_parameters(const OnnxTranslation& all) {
  std::unordered_set<std::string> known(all.read_as_numbers.begin(), all.read_as_numbers.end());
  const auto add = [&](const std::string& tensor) {
    known.insert(tensor);
    for (const std::string& source : all.origins.parameters_in(tensor)) known.insert(source);
  };
  for (const std::string& name : all.read_as_computed) add(name);
  for (const io::ReadNode& node : all.graph.nodes)  // the norm's bias contains that of the layer
    if (const std::string ending = "weight"; has_folded_norm(node))
      for (const std::string& input : node.inputs)
        if (input.ends_with(ending))
          known.insert(input.substr(0, input.size() - ending.size()) + "bias");
  for (const OnnxListedLayer& layer : all.layers.all()) {
    if (!layer.zero_bias.empty()) known.insert(layer.zero_bias);
    for (const OnnxLayerArray& array : layer.arrays) {
      if (array.from.tensor == nullptr) continue;
      known.insert(initializer_name(array.from));
      add(array.from.tensor->name);
    }
  }
  return known;
}

// Parameters that no node reads. A module without any is unused, or shares those of another one.
std::vector<std::string> left_out_parameters(const OnnxTranslation& all) {
  const std::unordered_set<std::string> known = known_parameters(all);
  std::vector<std::string> left_out;
  for (const std::string& name : all.origins.parameters()) {
    const bool is_bias = name.ends_with("bias");
    const bool is_alone = is_bias && !known.contains(name.substr(0, name.size() - 4) + "weight");
    if (!known.contains(name) && !name.ends_with("weight") && !is_alone) left_out.push_back(name);
  }
  return left_out;
}

// Layers of weights that the file has once, and that have no name of their own there.
std::vector<std::string> separated_weights(const OnnxTranslation& all) {
  std::unordered_set<const io::StoredTensor*> seen;
  std::vector<std::string> separated;
  for (const OnnxListedLayer& layer : all.layers.all())
    for (const OnnxLayerArray& array : layer.arrays)
      if (!array.from.reader.empty() && !seen.insert(array.from.tensor).second)
        separated.push_back(layer.name + "." + array.name);
  return separated;
}

void note_parameters(const OnnxTranslation& all, const std::vector<bool>& needed,
                     std::vector<std::string>& notes) {
  OnnxParameterLists lists;
  for (std::size_t i = 0; i < needed.size(); ++i)
    for (const OnnxLayerArray& array : all.layers.all()[i].arrays)
      if (needed[i]) add_to_lists(all, all.layers.all()[i], array, lists);
  const auto note = [&](const std::vector<std::string>& names, const std::string& before,
                        const std::string& after) {
    if (!names.empty()) notes.push_back(before + listed(names) + after);
  };
  note(lists.assumed, "the file does not tell parameters from buffers; also trained: ",
       "; " + freeze_option(lists.assumed) + " keeps those that PyTorch does not train");
  note(lists.buffers, "trained, although PyTorch does not train them: ",
       "; " + freeze_option(lists.buffers) + " keeps them");
  note(lists.computed, "trained as the exporter has computed them: ",
       "; export with optimize=False to train what they were computed from");
  note(separated_weights(all), "trained apart from equal ones, which the file has merged: ",
       "; export with do_constant_folding=False if they are shared");
  note(left_out_parameters(all), "not trained, as the file does not contain them: ",
       "; if the network uses them, export with optimize=False");
  note(all.read_as_numbers, "not trained, as they are read as numbers: ", "");
  note(all.read_as_computed, "not trained, as the exporter has computed them: ",
       "; export with do_constant_folding=False (dynamo=True: optimize=False) to train parameters "
       "in them");
}

// With dynamo=True, the optimizer folds norms in every mode, and names its rule at the node.
void note_folded_norms(const OnnxTranslation& all, std::vector<std::string>& notes) {
  const auto by_rule =
      static_cast<std::size_t>(std::ranges::count_if(all.graph.nodes, has_folded_norm));
  const std::size_t count = all.folded_norms + by_rule;
  if (count == 0) return;
  const bool is_dynamo = by_rule > 0 || all.origins.are_known();
  notes.push_back(std::to_string(count) +
                  " batch norms are folded into the layers before them and not trained; export "
                  "with " +
                  (is_dynamo ? "optimize=False, or with dynamo=False and " : "") +
                  "training=TrainingMode.TRAINING to keep them");
}

}  // namespace

OnnxImport import_onnx(const io::OnnxReader& file, OnnxArrays arrays) {
  OnnxTranslation all(file);
  const OnnxActivation output = translate_nodes(all);
  const std::vector<bool> needed = needed_layers(all.layers, output.layer);
  leave_out_neutral_parameters(all.layers);
  OnnxImport result;
  result.head = open_head(all.layers, output);
  result.definition = definition_of(all, output, needed);
  result.notes = std::move(all.notes);
  result.leaves_out_softmax = all.ends_in_softmax;
  if (all.tokens > 0)
    result.text = {.length = all.tokens,
                   .vocabulary = output.shape.size() > 2 ? output.shape[1] : 0};
  if (result.head.empty())
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
