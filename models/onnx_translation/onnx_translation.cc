// Names layers as PyTorch's modules, and checks the ends of the graph.
#include "models/onnx_translation/onnx_translation.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "engine/core/error.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"

namespace models {
namespace {

constexpr std::size_t kMaxLayerName = 200;

bool is_floating_onnx_type(std::int64_t number) {
  return number == 1 || number == 10 || number == 11 || number == 16;
}

// Characters of a layer's name: those of Python's names, dots and hyphens.
std::string plain_characters(std::string text) {
  if (text.size() > kMaxLayerName) text.resize(kMaxLayerName);
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_' && c != '-') c = '_';
  return text;
}

// Converts a node's name to that of its module: "/layer1/layer1.0/conv1/Conv" to "layer1.0.conv1".
// A part that begins with the part before it repeats it.
std::string module_name(const std::string& node_name) {
  const std::size_t last = node_name.rfind('/');
  if (last == std::string::npos) return "";
  std::string name, before;
  for (std::size_t begin = 0; begin <= last;) {
    const std::size_t end = node_name.find('/', begin);
    const std::string part = node_name.substr(begin, end - begin);
    begin = end + 1;
    if (part.empty()) continue;
    if (!before.empty() && part.starts_with(before + "."))
      name += part.substr(before.size());
    else
      name += (name.empty() ? "" : ".") + part;
    before = part;
  }
  return name;
}

// Converts a parameter's name to that of its layer: "fc.weight" to "fc"; "" for other names.
std::string owner_name(const std::string& parameter) {
  for (const std::string_view ending :
       {".weight", ".bias", ".running_mean", ".running_var", ".in_proj_weight", ".in_proj_bias"})
    if (parameter.ends_with(ending)) return parameter.substr(0, parameter.size() - ending.size());
  return "";
}

void check_ends(const std::string& name, const io::OnnxGraph& graph) {
  const auto count = [&](std::size_t found, const char* what) {
    if (found != 1)
      throw engine::ModelError(name + ": its graph has " + std::to_string(found) + " " + what);
  };
  count(graph.inputs.size(),
        "inputs, expected 1: images, rows of numbers or token ids; export a module whose forward "
        "takes these alone, without masks");
  count(graph.outputs.size(), "outputs, expected 1: the logits");
}

// Throws if two constants, inputs or outputs of nodes have one name.
void check_origins(const std::string& file, const io::OnnxGraph& graph) {
  std::unordered_set<std::string_view> seen;
  const auto check = [&](const std::string& value) {
    if (!value.empty() && !seen.insert(value).second)
      throw engine::ModelError(file + ": its graph has two values named '" +
                               base::escape_text(value) + "'");
  };
  for (const io::StoredTensor& tensor : graph.constants) check(tensor.name);
  for (const io::ReadValue& input : graph.inputs) check(input.name);
  for (const io::ReadNode& node : graph.nodes)
    for (const std::string& output : node.outputs) check(output);
}

// Returns the value of the input.
OnnxKnown sample_of(const std::string& name, const io::ReadValue& input,
                    const std::optional<OnnxSize>& size) {
  const std::string who = name + ": its input '" + base::escape_text(input.name) + "' is ";
  if (const auto tokens = tokens_of(name, input)) return *tokens;
  if (!is_floating_onnx_type(input.type_number))
    throw engine::ModelError(who + "of ONNX's type " + std::to_string(input.type_number) +
                             ", expected floats (images or rows of numbers) or int64 or int32 "
                             "(token ids)");
  std::vector<std::int64_t> shape = input.shape;
  std::ranges::replace(shape, std::int64_t{-1}, kOnnxUnknown);
  const std::string text = onnx_shape_text(shape);
  if (shape.size() != 4 && shape.size() != 2)
    throw engine::ModelError(who + text +
                             ", expected [batch, channels, height, width] or [batch, columns]" +
                             (shape.size() == 3 ? "; export [batch, channels, 1, length] for rows, "
                                                  "with x.squeeze(2) at the start of forward"
                                                : ""));
  if (shape[1] < 1)
    throw engine::ModelError(who + text + ", expected a fixed number of " +
                             (shape.size() == 4 ? "channels" : "columns"));
  shape[0] = kOnnxBatch;
  if (size && shape.size() == 4) std::ranges::copy(*size, shape.begin() + 2);
  return OnnxActivation{.layer = -1, .shape = std::move(shape)};
}

// The number of nodes by which `engine export --input pixels` normalizes its input; 0 for other
// files. Throws if the file states them and has others.
std::size_t count_pixel_nodes(const std::string& file, const io::OnnxGraph& graph) {
  const auto stated = graph.metadata.find("input");
  if (!graph.producer.starts_with("engine") || stated == graph.metadata.end() ||
      stated->second != "pixels")
    return 0;
  std::string value = graph.inputs[0].name;
  const auto reads = [&](std::size_t at, const char* type, const std::string& constant) {
    if (at >= graph.nodes.size()) return false;
    const io::ReadNode& node = graph.nodes[at];
    const bool fits = node.type == type && node.outputs.size() == 1 && node.inputs.size() == 2 &&
                      node.inputs[0] == value && node.inputs[1].starts_with(constant);
    if (fits) value = node.outputs[0];
    return fits;
  };
  const bool divides = reads(0, "Div", "constant/255");
  const std::size_t count =
      divides && reads(1, "Sub", "constant/input/") && reads(2, "Div", "constant/input/") ? 3 : 1;
  const auto reads_pixels = [&](const io::ReadNode& node) {  // Shape reads the number of samples
    return node.type != "Shape" &&
           std::ranges::find(node.inputs, graph.inputs[0].name) != node.inputs.end();
  };
  if (!divides || std::any_of(graph.nodes.begin() + static_cast<std::ptrdiff_t>(count),
                              graph.nodes.end(), reads_pixels))
    throw engine::ModelError(file +
                             ": it states that its input is pixels, but does not divide them by "
                             "255 first; export it with --input prepared");
  return count;
}

}  // namespace

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

bool is_trained_weight(const OnnxConstant& constant) {
  return constant.origin == OnnxOrigin::kParameter || constant.origin == OnnxOrigin::kComputed;
}

// Names of tensors in Constant nodes may repeat. PyTorch trains none of them.
std::string parameter_key(const OnnxConstant& constant) {
  if (!is_trained_weight(constant))
    return std::to_string(reinterpret_cast<std::uintptr_t>(constant.tensor));
  const std::string& name = initializer_name(constant);
  return constant.reader.empty() ? name : name + '\n' + constant.reader;
}

// "['', 'layer1', 'layer1.0', 'conv1', 'conv2d_3']": the last scope is the node's own name.
std::string module_of(const io::ReadNode& node) {
  if (node.scopes.empty()) return module_name(node.name);
  const std::vector<std::string> scopes = quoted_words(node.scopes);
  return scopes.size() < 2 ? "" : scopes[scopes.size() - 2];
}

std::optional<OnnxTokens> tokens_of(const std::string& file, const io::ReadValue& input) {
  if (!is_integer_type(input.type_number)) return std::nullopt;
  std::vector<std::int64_t> shape = input.shape;
  std::ranges::replace(shape, std::int64_t{-1}, kOnnxUnknown);
  if (shape.size() != 2 || shape[1] < 1 || shape[1] > kMaxOnnxExtent)
    throw engine::ModelError(file + ": its input '" + base::escape_text(input.name) +
                             "' of integers is " + onnx_shape_text(shape) +
                             ", expected token ids, [batch, length], of a fixed length; name the "
                             "batch alone in dynamic_axes or dynamic_shapes");
  shape[0] = kOnnxBatch;
  return OnnxTokens{std::move(shape)};
}

std::string onnx_shape_text(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> parts;
  for (const std::int64_t extent : shape)
    parts.push_back(extent == kOnnxBatch     ? "batch"
                    : extent == kOnnxUnknown ? "?"
                    : batches_of(extent) > 0 ? std::to_string(batches_of(extent)) + " batch"
                                             : std::to_string(extent));
  return std::string("[").append(base::join_text(parts)).append("]");
}

OnnxValues::OnnxValues(const io::OnnxGraph& graph, const OnnxOrigins& origins) {
  for (const io::StoredTensor& tensor : graph.constants)
    known_[tensor.name] =
        OnnxConstant{.tensor = &tensor, .origin = origins.of(tensor, tensor.name)};
  for (const io::ReadNode& node : graph.nodes)
    for (const std::string& value : node.inputs) ++readers_[value];
  for (const io::ReadValue& output : graph.outputs) ++readers_[output.name];
}

const OnnxKnown* OnnxValues::find(const std::string& value) const {
  const auto found = known_.find(value);
  return found == known_.end() ? nullptr : &found->second;
}

void OnnxValues::set(const std::string& value, OnnxKnown known) {
  const auto* output = std::get_if<OnnxActivation>(&known);
  if (output != nullptr && readers(value) > 0) values_of_layers_[output->layer].insert(value);
  known_[value] = std::move(known);
}

// A value without further readers is no longer one of its layer's, so that many of one layer do not
// make each search for readers longer.
void OnnxValues::count_reads(const io::ReadNode& node) {
  for (const std::string& value : node.inputs) {
    if (++reads_[value] < readers(value)) continue;
    const auto known = known_.find(value);
    const auto* output =
        known == known_.end() ? nullptr : std::get_if<OnnxActivation>(&known->second);
    if (output == nullptr) continue;
    const auto values = values_of_layers_.find(output->layer);
    if (values != values_of_layers_.end()) values->second.erase(value);
  }
}

bool OnnxValues::has_one_reader_left(int layer) const {
  const auto values = values_of_layers_.find(layer);
  if (values == values_of_layers_.end()) return false;
  std::size_t left = 0;
  for (const std::string& value : values->second) {
    const auto* output = std::get_if<OnnxActivation>(&known_.at(value));
    if (output == nullptr || output->layer != layer) continue;  // it has been replaced
    const auto reads = reads_.find(value);
    left += readers(value) - (reads == reads_.end() ? 0 : reads->second);
    if (left > 1) return false;
  }
  return left == 1;
}

std::size_t OnnxValues::readers(const std::string& value) const {
  const auto found = readers_.find(value);
  return found == readers_.end() ? 0 : found->second;
}

// Tensors that the exporter has computed or merged have other names than in PyTorch.
OnnxLayerList::OnnxLayerList(const io::OnnxGraph& graph, const OnnxOrigins& origins) {
  const auto reserve = [&](const std::string& name) {
    owners_.insert(plain_characters(owner_name(name)));
  };
  std::unordered_set<std::string_view> unowned;
  for (const io::StoredTensor& tensor : graph.constants) {
    reserve(tensor.name);
    if (owner_name(tensor.name).empty()) unowned.insert(tensor.name);
  }
  for (const std::string& name : origins.parameters()) reserve(name);
  for (const io::ReadNode& node : graph.nodes) {
    if (node.type == "Identity" && !node.outputs.empty()) reserve(node.outputs[0]);
    const bool is_weighted =
        node.type == "MatMul" || node.type == "Gemm" || node.type == "Conv" || node.type == "PRelu";
    if (is_weighted && std::ranges::any_of(node.inputs, [&](const std::string& input) {
          return unowned.contains(input);
        }))
      owners_.insert(plain_characters(module_of(node)));
  }
}

int OnnxLayerList::add(OnnxListedLayer layer) {
  read_.insert(layer.inputs.begin(), layer.inputs.end());
  layers_.push_back(std::move(layer));
  return static_cast<int>(layers_.size()) - 1;
}

std::string OnnxLayerList::unique(const std::string& wanted) {
  const std::string plain = plain_characters(wanted);
  std::string name = plain;
  while (!names_.insert(name).second)
    name = plain + "_" + std::to_string(++repeats_.try_emplace(plain, 1).first->second);
  return name;
}

std::string OnnxLayerList::free_name(const std::string& parameter, const io::ReadNode& node) {
  const std::string owner = plain_characters(owner_name(parameter));
  if (!owner.empty() && !names_.contains(owner)) return unique(owner);
  std::string type = node.type;
  std::ranges::transform(type, type.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string module = plain_characters(module_of(node));
  const bool is_of_parameters = parameter.empty() && owners_.contains(module);
  if (!module.empty()) return unique(is_of_parameters ? module + "." + type : module);
  return unique(type + "_" + std::to_string(layers_.size()));
}

std::string OnnxLayerList::free_parameter_name(const std::string& parameter) {
  const std::string ending = ".weight";
  if (!parameter.ends_with(ending)) return unique(parameter);
  return unique(parameter.substr(0, parameter.size() - ending.size()));
}

void OnnxLayerList::rename(int layer, const std::string& parameter) {
  const std::string owner = plain_characters(owner_name(parameter));
  OnnxListedLayer& renamed = at(layer);
  const bool is_read = std::ranges::any_of(
      layers_, [&](const OnnxListedLayer& other) { return other.tied == renamed.name; });
  if (!owner.empty() && !names_.contains(owner) && !is_read) renamed.name = unique(owner);
}

int OnnxLayerList::user_of(const OnnxConstant& weight) const {
  const auto found = users_.find(parameter_key(weight));
  return found == users_.end() ? -1 : found->second;
}

void OnnxLayerList::set_user(const OnnxConstant& weight, int layer) {
  users_[parameter_key(weight)] = layer;
}

OnnxTranslation::OnnxTranslation(const io::OnnxReader& source, OnnxReading how,
                                 std::unordered_set<const io::StoredTensor*> buffers,
                                 std::optional<io::OnnxGraph> changed)
    : reading(std::move(how)),
      file(source),
      changed_graph(std::move(changed)),
      graph(changed_graph ? *changed_graph : source.graph()),
      origins(graph, std::move(buffers)),
      values(graph, origins),
      layers(graph, origins) {
  check_ends(file.name(), graph);
  check_origins(file.name(), graph);
  const io::ReadValue& input = graph.inputs[0];
  const OnnxKnown sample = sample_of(file.name(), input, reading.size);
  if (const auto* ids = std::get_if<OnnxTokens>(&sample)) tokens = ids->shape[1];
  fixed_batch = std::max<std::int64_t>(0, input.shape[0]);
  pixel_nodes = count_pixel_nodes(file.name(), graph);
  values.set(input.name, sample);
  if (pixel_nodes == 0) return;
  values.set(graph.nodes[pixel_nodes - 1].outputs[0], sample);
  notes.push_back("its normalization of pixels is left out: the data set's preparation does it");
}

}  // namespace models
