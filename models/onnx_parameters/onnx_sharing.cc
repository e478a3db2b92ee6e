// Parameters that several layers read: which layers share all of theirs, and which parameters are
// layers of their own for that.
#include "models/onnx_parameters/onnx_sharing.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "engine/core/error.h"
#include "io/base/text/escape_text.h"
#include "io/interchange/array_files.h"
#include "models/onnx_origins/onnx_calls.h"
#include "models/onnx_translation/onnx_combined.h"
#include "models/onnx_translation/onnx_plain.h"
#include "models/onnx_translation/onnx_tensors.h"

namespace models {
namespace {

// The name of the module at its first use: "head.fc" for "head_1.fc".
std::string first_use(const std::string& module) {
  std::string name;
  for (std::size_t begin = 0; begin <= module.size();) {
    const std::size_t end = std::min(module.find('.', begin), module.size());
    std::string part = module.substr(begin, end - begin);
    const std::size_t last = part.find_last_not_of("0123456789");
    if (last != std::string::npos && last > 0 && last + 1 < part.size() && part[last] == '_')
      part.resize(last);
    name += (begin == 0 ? "" : ".") + part;
    begin = end + 1;
  }
  return name;
}

bool is_weighted_sum(const OnnxListedLayer& layer) {
  return layer.kind == "dense" || layer.kind == "conv2d" || layer.kind == "conv_transpose";
}

std::string* option_text(OnnxListedLayer& layer, const char* key) {
  const auto found =
      std::ranges::find(layer.options, key, &std::pair<std::string, std::string>::first);
  return found == layer.options.end() ? nullptr : &found->second;
}

// Identifies the statistics of a norm without parameters. With dynamo=True the exporter may have
// replaced them by equal ones of another module, which the call shows: it names the module's own
// ones, or the update of them by an earlier call.
OnnxConstant statistics_key(const OnnxOperator& op, const OnnxConstant& mean) {
  constexpr std::size_t kMean = 3;
  const OnnxCall call = read_onnx_call(op.node().call);
  OnnxConstant key = mean;
  key.origin = OnnxOrigin::kParameter;  // identified by its name, not by its tensor
  const std::string& name = initializer_name(mean);
  std::string placeholder = "%b_" + name;
  std::ranges::replace(placeholder, '.', '_');
  const std::string read =
      call.is_batch_norm() && call.arguments.size() > kMean ? call.arguments[kMean] : placeholder;
  key.alias = read.starts_with("%b_") && read != placeholder ? read : name;
  key.alias += "\nstatistics";
  return key;
}

// Returns true if both layers multiply by one parameter, and one of them reads its transpose.
bool has_other_order(const OnnxListedLayer& layer, const OnnxListedLayer& other) {
  if (layer.kind != "dense" || other.kind != "dense" || layer.arrays.empty() ||
      other.arrays.empty())
    return false;
  const OnnxConstant &weight = layer.arrays[0].from, &owned = other.arrays[0].from;
  return weight.origin == OnnxOrigin::kParameter && weight.reader.empty() &&
         weight.tensor == owned.tensor && weight.transposed != owned.transposed;
}

// Whether PyTorch computes the weight from other parameters, e.g. by a parametrization.
bool has_computed_weight(const OnnxOperator& op) {
  const OnnxCall call = read_onnx_call(op.node().call);
  const std::size_t argument = weight_argument(call);
  return argument > 0 && argument < call.arguments.size() &&
         !call.arguments[argument].starts_with("%p_");
}

// A name for a layer whose weight the exporter has computed: that of its module would stand for the
// parameter. "": the module has no parameter of this name.
std::string computed_name(OnnxOperator& op, const OnnxConstant& weight) {
  const std::string module = module_of(op.node());
  if (!has_computed_numbers(weight) || module.empty()) return "";
  const OnnxOrigins& origins = op.all().origins;
  if (origins.are_known())
    return std::ranges::count(origins.parameters(), module + ".weight") == 0
               ? ""
               : module + "." + initializer_name(weight);
  std::string type = op.node().type;
  std::ranges::transform(type, type.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return module + "." + type;
}

// Whether two constants have the same numbers. The exporter may have stored a parameter twice: as
// it is, and transposed. False for further tensors after kMaxOnnxCompared numbers.
bool has_same_numbers(OnnxTranslation& all, const OnnxConstant& a, const OnnxConstant& b) {
  if (a.tensor == b.tensor) return a.transposed == b.transposed;
  if (a.tensor == nullptr || b.tensor == nullptr || shape_of(a) != shape_of(b)) return false;
  all.compared += a.tensor->count();
  if (all.compared > kMaxOnnxCompared) return false;
  const auto loaded = [&](const OnnxConstant& constant) {
    io::NamedArray array = all.file.load(*constant.tensor);
    return constant.transposed ? io::transposed(std::move(array)) : array;
  };
  const io::NamedArray first = loaded(a), second = loaded(b);
  return first.type == second.type && first.data == second.data;
}

// Whether the matrix is the transpose of the first one; nothing if it is neither, or may be both.
std::optional<bool> is_transpose(OnnxTranslation& all, const OnnxConstant& first,
                                 const io::StoredTensor& tensor) {
  if (first.tensor->shape.size() != 2 || tensor.shape.size() != 2) return std::nullopt;
  OnnxConstant turned = first;
  turned.transposed = true;
  const OnnxConstant own{.tensor = &tensor};
  const bool is_same = has_same_numbers(all, own, first),
             is_turned = has_same_numbers(all, own, turned);
  return is_same == is_turned ? std::nullopt : std::optional(is_turned);
}

// Whether the tensor is the transpose of a weight by its use: MatMul reads it for a Linear layer.
bool is_read_transposed(const OnnxTranslation& all, const std::string& tensor) {
  return std::ranges::any_of(all.graph.nodes, [&](const io::ReadNode& node) {
    if (node.type != "MatMul" || node.inputs.size() < 2 || node.inputs[1] != tensor) return false;
    const OnnxCall call = read_onnx_call(node.call);
    const std::size_t weight = weight_argument(call);
    return weight > 0 && weight < call.arguments.size() &&
           call.arguments[weight].starts_with("%p_");
  });
}

// The tensor with the parameter's numbers in the order of PyTorch; without one: unknown.
OnnxConstant in_own_order(OnnxTranslation& all, const std::string& parameter,
                          const std::vector<const io::StoredTensor*>& tensors) {
  const io::StoredTensor* turned = nullptr;
  for (const io::StoredTensor* tensor : tensors)
    if (is_read_transposed(all, tensor->name)) turned = tensor;
  for (const io::StoredTensor* tensor : tensors) {
    OnnxConstant found{.tensor = tensor,
                       .origin = OnnxOrigin::kParameter,
                       .alias = parameter,
                       .computation = OnnxComputation::kShared};
    const bool is_order = computation_of(all.origins, {}, tensor->name) == OnnxComputation::kOrder;
    if (tensor->name == parameter ||
        (is_order && turned != nullptr && is_transpose(all, found, *turned).value_or(false)))
      return found;
  }
  return {};
}

// Hashes of the rows of an array of `count` numbers, or of each two neighbors of a vector. Rows of
// one number alone are left out, as new parameters have many.
void add_rows(const io::NamedArray& array, std::size_t count, std::vector<std::size_t>& hashes) {
  const bool is_vector = array.shape.size() == 1;
  const std::size_t width = array.data.size() / count,
                    rows = is_vector ? count : static_cast<std::size_t>(array.shape[0]),
                    row = array.data.size() / rows, bytes = is_vector ? 2 * width : row;
  const std::string_view text(reinterpret_cast<const char*>(array.data.data()), array.data.size());
  for (std::size_t at = 0; at + bytes <= text.size(); at += row) {
    const std::string_view numbers = text.substr(at, bytes);
    if (numbers.substr(width) != numbers.substr(0, bytes - width))
      hashes.push_back(std::hash<std::string_view>()(numbers));
  }
}

// Hashes of rows and columns of a part of a parameter: two parts with one of them overlap.
std::vector<std::size_t> vectors_of(OnnxTranslation& all, const io::StoredTensor& part) {
  std::vector<std::size_t> hashes;
  const auto count = static_cast<std::size_t>(part.count());
  all.compared += count;
  if (count == 0 || part.shape.empty() || !part.type || all.compared > kMaxOnnxCompared)
    return hashes;
  io::NamedArray array = all.file.load(part);
  add_rows(array, count, hashes);
  if (array.shape.size() == 2) add_rows(io::transposed(std::move(array)), count, hashes);
  return hashes;
}

// Without the parameter itself, parts that overlap are trained apart.
void separate_overlaps(OnnxTranslation& all, const std::vector<const io::StoredTensor*>& parts) {
  std::unordered_map<std::size_t, const io::StoredTensor*> readers;  // the first part of a vector
  for (const io::StoredTensor* part : parts) {
    if (computation_of(all.origins, {}, part->name) != OnnxComputation::kPart) continue;
    for (const std::size_t vector : vectors_of(all, *part)) {
      const io::StoredTensor* first = readers.try_emplace(vector, part).first->second;
      if (first != part) all.effects.separated.insert({first->name, part->name});
    }
  }
}

bool is_copy(OnnxTranslation& all, const OnnxConstant& matrix, const OnnxConstant& table) {
  if (matrix.tensor == table.tensor) return false;
  const std::vector<std::string> sources = all.origins.parameters_in(matrix.tensor->name);
  // The exporter may have computed other numbers from it.
  if (!sources.empty())
    return sources == std::vector<std::string>{table.tensor->name} &&
           has_same_numbers(all, matrix, table);
  if (all.origins.are_known() || !all.origins.is_anonymous(matrix.tensor->name)) return false;
  return has_same_numbers(all, matrix, table);
}

// Lets the matrix of a dense layer be the table of an embedding if the exporter has computed the
// matrix from it: PyTorch trains one tensor then.
void share_table(OnnxOperator& op, OnnxListedLayer& layer) {
  OnnxTranslation& all = op.all();
  OnnxConstant& matrix = layer.arrays.at(0).from;
  if (all.tokens == 0 || layer.kind != "dense" || layer.arrays.size() != 1) return;
  for (const OnnxListedLayer& other : all.layers.all())
    if (other.kind == "embedding" && other.tied.empty() &&
        other.arrays.at(0).shape == layer.arrays[0].shape &&
        is_copy(all, matrix, other.arrays[0].from)) {
      matrix = other.arrays[0].from;
      return;
    }
}

}  // namespace

void set_reader(OnnxOperator& op, OnnxConstant& weight) {
  OnnxTranslation& all = op.all();
  if (!all.origins.is_anonymous(initializer_name(weight)) || !is_trained_weight(weight)) return;
  const std::string module = module_of(op.node());
  weight.reader = first_use(module);
  if (all.layers.user_of(weight) < 0) weight.reader = module;
}

bool has_arrays_of(OnnxTranslation& all, const OnnxListedLayer& layer,
                   const OnnxListedLayer& other) {
  const bool is_head = other.kind == "embedding" && layer.kind == "dense";  // scores of tokens
  const bool has_one_bias = layer.arrays.size() > 1 || layer.zero_bias == other.zero_bias;
  return (layer.kind == other.kind || is_head) && has_one_bias &&
         std::ranges::equal(layer.arrays, other.arrays,
                            [&](const OnnxLayerArray& a, const OnnxLayerArray& b) {
                              return a.shape == b.shape && a.values == b.values &&
                                     parameter_key(a.from) == parameter_key(b.from) &&
                                     has_same_numbers(all, a.from, b.from);
                            });
}

int add_weighted(OnnxOperator& op, OnnxListedLayer layer) {
  OnnxTranslation& all = op.all();
  share_table(op, layer);
  OnnxConstant& weight = layer.arrays.at(0).from;
  const std::string name = initializer_name(weight);
  set_reader(op, weight);
  const bool is_of_no_module = all.origins.is_torch() && is_trained_weight(weight) &&
                               !has_computed_weight(op) && weight.reader.empty() &&
                               !all.origins.is_anonymous(name) && !name.ends_with("weight");
  if (const std::string own = computed_name(op, weight); !own.empty())
    layer.name = all.layers.free_parameter_name(own);
  else
    layer.name = is_of_no_module ? all.layers.free_parameter_name(name)
                                 : all.layers.free_name(name, op.node());
  if (layer.arrays.size() == 1) layer.zero_bias = all.origins.bias_of(op.node());
  const int owner = all.layers.user_of(weight);
  if (owner < 0) {
    const OnnxConstant used = weight;
    const int index = all.layers.add(std::move(layer));
    all.layers.set_user(used, index);
    return index;
  }
  const OnnxListedLayer& other = all.layers.at(owner);
  const bool is_same = has_arrays_of(all, layer, other);
  // A layer of the weight alone has both of its orders: separate_parameters().
  if (!is_same && has_other_order(layer, other)) return all.layers.add(std::move(layer));
  // An Add may follow with the bias.
  if (!is_same && op.node().type == "MatMul" && other.kind == "dense" &&
      other.arrays.at(0).shape == layer.arrays.at(0).shape)
    return all.layers.add(std::move(layer));
  if (!is_same)
    throw OnnxUnsupported("it shares the weight '" + name + "' with layer '" + other.name +
                          "', but not its bias, shape or use");
  layer.tied = other.name;
  layer.arrays.clear();
  return all.layers.add(std::move(layer));
}

int add_norm(OnnxOperator& op, OnnxListedLayer layer) {
  OnnxTranslation& all = op.all();
  const OnnxConstant& weight = layer.arrays.at(0).from;
  const bool is_trained = weight.tensor != nullptr && is_trained_weight(weight);
  const bool has_statistics = layer.arrays.size() > 2;
  if (!is_trained && !has_statistics) return all.layers.add(std::move(layer));
  const OnnxConstant key = is_trained ? weight : statistics_key(op, layer.arrays[2].from);
  const int owner = all.layers.user_of(key);
  if (owner >= 0 && has_arrays_of(all, layer, all.layers.at(owner))) {
    layer.tied = all.layers.at(owner).name;
    layer.arrays.clear();
  }
  const int index = all.layers.add(std::move(layer));
  if (owner < 0) all.layers.set_user(key, index);
  return index;
}

// The bias names a weight that the exporter has transposed.
void tie_to_owner(OnnxTranslation& all, int index) {
  OnnxLayerList& layers = all.layers;
  OnnxListedLayer& layer = layers.at(index);
  OnnxConstant& weight = layer.arrays[0].from;
  const OnnxConstant read = weight;
  const std::string& bias = initializer_name(layer.arrays[1].from);
  if (!weight.reader.empty() && bias.ends_with(".bias") && !has_computed_numbers(weight)) {
    OnnxConstant named = weight;
    named.alias = bias.substr(0, bias.size() - 4) + "weight";
    named.reader.clear();
    const int user = layers.user_of(named);
    if (user < 0) layers.set_user(named, index);
    if (user < 0 || has_same_numbers(all, weight, layers.at(user).arrays[0].from)) weight = named;
  }
  const int owner = layers.user_of(weight);
  if (owner < 0 || owner == index || !has_arrays_of(all, layer, layers.at(owner))) return;
  if (layers.user_of(read) == index) layers.set_user(read, owner);
  layer.tied = layers.at(owner).name;
  layer.arrays.clear();
}

void share_orders(OnnxTranslation& all) {
  std::map<std::string, std::vector<const io::StoredTensor*>> tensors;  // by parameter
  for (const io::StoredTensor& tensor : all.graph.constants) {
    if (all.origins.of(tensor, tensor.name) != OnnxOrigin::kParameter) continue;
    const std::vector<std::string> sources = all.origins.parameters_in(tensor.name);
    if (sources.empty())
      tensors[tensor.name].insert(tensors[tensor.name].begin(), &tensor);
    else if (sources.size() == 1)
      tensors[sources[0]].push_back(&tensor);
  }
  for (const auto& [parameter, of_parameter] : tensors) {
    const auto is_whole = [&](const io::StoredTensor* tensor) {
      const OnnxComputation computation = computation_of(all.origins, {}, tensor->name);
      return computation == OnnxComputation::kNone || computation == OnnxComputation::kOrder;
    };
    if (of_parameter.size() == 1) continue;
    if (std::ranges::none_of(of_parameter, is_whole)) {
      separate_overlaps(all, of_parameter);
      continue;
    }
    const OnnxConstant first = in_own_order(all, parameter, of_parameter);
    for (const io::StoredTensor* tensor : of_parameter) {
      const OnnxComputation computation = computation_of(all.origins, {}, tensor->name);
      if (tensor->name == parameter || computation == OnnxComputation::kNumbers) continue;
      OnnxConstant shared = first;
      if (tensor != first.tensor) {
        const auto turned =
            first.tensor == nullptr ? std::nullopt : is_transpose(all, first, *tensor);
        shared.transposed = turned.value_or(false);
        if (!turned) all.effects.separated.insert(tensor->name);
        if (!turned) continue;
      }
      all.values.set(tensor->name, std::move(shared));
    }
  }
}

bool is_apart(const OnnxTranslation& all, const OnnxConstant& parameter) {
  return all.reading.apart.contains(parameter_key(parameter));
}

bool is_bias_of(const OnnxOperator& op, const OnnxTranslation& all, const OnnxConstant& weight,
                const OnnxConstant& bias) {
  const std::string &name = initializer_name(weight), &other = initializer_name(bias);
  const OnnxOrigins& origins = all.origins;
  const bool is_named = weight.origin == OnnxOrigin::kParameter &&
                        bias.origin == OnnxOrigin::kParameter && !origins.is_anonymous(name) &&
                        !origins.is_anonymous(other) && weight.reader.empty();
  // Without a call, dynamo=True may have replaced a bias by an equal one of another module.
  if (!is_named || !origins.is_torch() || has_computed_weight(op) ||
      (origins.are_known() && op.node().call.empty()))
    return true;
  const std::string ending = "weight";
  return name.ends_with(ending) && other == name.substr(0, name.size() - ending.size()) + "bias";
}

bool has_bias(OnnxOperator& op) {
  if (!op.has_input(2)) return false;
  return !std::holds_alternative<OnnxTensor>(op.input(2)) || !is_all(op, 2, 0);
}

bool has_own_bias(OnnxOperator& op) {
  if (!has_bias(op) || op.is_activation(1)) return false;
  const OnnxConstant bias = op.constant(2);
  if (is_apart(op.all(), op.constant(1))) return false;
  const bool is_one = bias.tensor->count() == 1;  // for all outputs of a Gemm
  if (op.node().type == "Gemm" && is_one && op.constant(1).tensor->count() > 1 &&
      shape_of(op.constant(1)).at(op.integer("transB", 0) != 0 ? 0 : 1) != 1)
    return false;
  return !is_apart(op.all(), bias) && is_bias_of(op, op.all(), op.constant(1), bias);
}

OnnxActivation with_bias_apart(OnnxOperator& op, OnnxActivation value) {
  if (!has_bias(op) || has_own_bias(op)) return value;
  value = as_plain(value);
  const OnnxConstant stored = op.constant(2);
  OnnxActivation bias =
      is_trained_weight(stored) || stored.tensor->shape.size() == 1
          ? parameter_value(op, stored)
          : tensor_value(
                op, {.shape = {1}, .integers = {}, .reals = op.tensor(2).reals, .is_real = true});
  const std::size_t rank = value.plain.dims.size();
  if (op.node().type != "Gemm" && rank > 2) bias.plain.dims.resize(rank - 1);  // pixels
  return as_special(combined(op, "add", std::move(value), std::move(bias)));
}

OnnxActivation with_zero_bias(OnnxOperator& op, OnnxActivation value) {
  OnnxTranslation& all = op.all();
  const std::string name = all.origins.bias_of(op.node());
  const auto has_sum = [&](const io::ReadNode& node) {
    return node.type == "Add" && node.call == op.node().call &&
           std::ranges::find(node.inputs, op.node().outputs[0]) != node.inputs.end();
  };
  if (name.empty() || has_bias(op) || std::ranges::any_of(all.graph.nodes, has_sum)) return value;
  value = as_plain(value);
  const std::int64_t out = extent_of(value.plain, value.plain.dims.back());
  if (out < 1) return value;
  OnnxActivation bias = tensor_value(op, zeros(op, {out}, /*is_real=*/true));
  const auto [found, is_new] = all.effects.zero_biases.try_emplace(name, bias.layer);
  OnnxListedLayer& layer = all.layers.at(found->second);
  bias.layer = found->second;
  if (is_new) {
    layer.kind = "parameter";
    layer.name = all.layers.free_parameter_name(name);
    layer.arrays[0].name = "weight";
  }
  return as_special(combined(op, "add", std::move(value), std::move(bias)));
}

void expect_shared_weights(const OnnxTranslation& all) {
  for (int i = 0; i < std::ssize(all.layers.all()); ++i) {
    const OnnxListedLayer& layer = all.layers.at(i);
    if (!is_weighted_sum(layer) || layer.arrays.empty()) continue;
    const OnnxConstant& weight = layer.arrays[0].from;
    const int owner = all.layers.user_of(weight);
    if (owner >= 0 && owner != i && is_trained_weight(weight) &&
        !has_other_order(layer, all.layers.at(owner)))
      throw engine::ModelError(all.file.name() + ": layers '" + all.layers.at(owner).name +
                               "' and '" + layer.name + "' share the weight '" +
                               base::escape_text(initializer_name(weight)) +
                               "', but not their biases, expected both or none to be shared");
  }
}

void restore_zero_biases(OnnxLayerList& layers) {
  std::unordered_set<std::string> read, restored;  // biases, and layers
  for (const OnnxListedLayer& layer : layers.all())
    for (const OnnxLayerArray& array : layer.arrays)
      if (array.from.tensor != nullptr) read.insert(initializer_name(array.from));
  for (int i = 0; i < std::ssize(layers.all()); ++i) {
    OnnxListedLayer& layer = layers.at(i);
    const bool is_own = layer.tied.empty() && layer.arrays.size() == 1 &&
                        !layer.zero_bias.empty() && !read.contains(layer.zero_bias);
    if (!is_own && !restored.contains(layer.tied)) continue;
    *option_text(layer, "bias") = "true";
    if (!is_own) continue;
    restored.insert(layer.name);
    const std::string* out = option_text(layer, layer.kind == "dense" ? "out" : "out_channels");
    layer.arrays.push_back({"bias", {}, {std::stoll(*out)}});
  }
}

bool separate_parameters(const OnnxTranslation& all, const std::vector<bool>& needed,
                         std::unordered_set<std::string>& apart) {
  std::map<std::string, std::size_t> readers;  // the first layer of each parameter
  std::unordered_set<std::string> found;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const OnnxListedLayer& layer = all.layers.all()[i];
    for (const OnnxLayerArray& array : layer.arrays) {
      if (!needed[i] || array.from.tensor == nullptr || !is_trained_weight(array.from)) continue;
      const std::string key = parameter_key(array.from);
      const std::size_t first = readers.try_emplace(key, i).first->second;
      if (first == i) continue;
      if (apart.contains(key))
        throw engine::ModelError(all.file.name() + ": layers '" + all.layers.all()[first].name +
                                 "' and '" + layer.name + "' share the parameter '" +
                                 base::escape_text(initializer_name(array.from)) +
                                 "', but not their other ones, expected all or none to be shared");
      found.insert(key);
    }
  }
  apart.merge(found);
  return apart.size() > all.reading.apart.size();
}

}  // namespace models
