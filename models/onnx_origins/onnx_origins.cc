#include "models/onnx_origins/onnx_origins.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>
#include <utility>

#include "models/onnx_origins/onnx_calls.h"

namespace models {
namespace {

bool is_statistic(const std::string& name) {
  return name.ends_with(".running_mean") || name.ends_with(".running_var") ||
         name.ends_with(".num_batches_tracked");
}

std::string owner_of(const std::string& name) { return name.substr(0, name.rfind('.')); }

// The name within its module: "weight".
std::string own_name(const std::string& name) {
  return name.substr(name.rfind('.') + 1);  // npos + 1 is 0
}

bool has_weight_input(const io::ReadNode& node) {
  return node.type == "Conv" || node.type == "ConvTranspose" || node.type == "Gemm" ||
         node.type == "PRelu" || node.type.ends_with("Normalization");
}

// The argument of the call that this input of the node stands for, by its role in the layer; 0:
// unknown. The tensor does not tell: a norm's weight and bias of zeros are one.
std::size_t argument_read(const OnnxCall& call, const io::ReadNode& node, std::size_t input) {
  if (node.type == "Mul" && !call.is_weighted_sum()) return weight_argument(call);
  if (node.type == "Add") return bias_argument(call);
  if (!has_weight_input(node) && node.type != "MatMul") return 0;
  if (input == 1) return weight_argument(call);
  return input == 2 ? bias_argument(call) : 0;
}

}  // namespace

std::vector<std::string> quoted_words(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t begin = text.find('\''); begin != std::string::npos;
       begin = text.find('\'', begin)) {
    const std::size_t end = text.find('\'', ++begin);
    if (end == std::string::npos) break;
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// "p_fc_weight: PARAMETER target='fc.weight'"; inputs come first, outputs may repeat a target.
void OnnxOrigins::read_signature_line(const std::string& line) {
  const std::size_t kind = line.find(": "), target = line.find(" target='");
  if (kind == std::string::npos || target == std::string::npos || target < kind + 2) return;
  const std::size_t end = line.find('\'', target + 9);
  if (end == std::string::npos) return;
  const bool is_parameter = line.substr(kind + 2, target - kind - 2) == "PARAMETER";
  const std::string name = line.substr(target + 9, end - target - 9);
  const bool is_new =
      signature_.try_emplace(name, is_parameter ? OnnxOrigin::kParameter : OnnxOrigin::kBuffer)
          .second;
  if (!is_new) return;
  placeholders_[line.substr(0, kind)] = name;
  if (is_parameter) parameters_.push_back(name);
}

bool OnnxOrigins::is_anonymous(const std::string& name) const {
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  // "val_3", "getitem_3"
  const std::size_t digits = name.starts_with("val_") ? 4 : name.starts_with("getitem_") ? 8 : 0;
  const bool is_counted =
      digits > 0 && name.size() > digits &&
      std::all_of(name.begin() + static_cast<std::ptrdiff_t>(digits), name.end(), is_digit);
  const bool is_value =
      is_torch_ && (name.find('/') != std::string::npos || std::ranges::all_of(name, is_digit));
  return is_counted || is_value || name.starts_with("onnx::");
}

OnnxOrigins::OnnxOrigins(const io::OnnxGraph& graph,
                         std::unordered_set<const io::StoredTensor*> buffers)
    : buffers_(std::move(buffers)),
      is_torch_(graph.producer.starts_with("pytorch")),
      is_own_(graph.producer.starts_with("engine")) {
  if (const auto text = graph.metadata.find(io::kOnnxSignature); text != graph.metadata.end()) {
    std::istringstream lines(text->second);
    for (std::string line; std::getline(lines, line);) read_signature_line(line);
  }
  for (const auto& [name, sources] : graph.folded_from) folded_[name] = quoted_words(sources);
  for (const io::ReadNode& node : graph.nodes)
    for (const std::string& input : node.inputs)
      if (is_statistic(input) && node.type != "BatchNormalization" && node.type != "Identity")
        frozen_norms_.insert(owner_of(input));
}

bool OnnxOrigins::has_layout_of_module(const io::StoredTensor& tensor) const {
  if (is_own_) return false;
  return are_known() ? signature_.contains(tensor.name) : !is_anonymous(tensor.name);
}

OnnxOrigin OnnxOrigins::by_signature(const std::string& name) const {
  if (const auto found = signature_.find(name); found != signature_.end()) return found->second;
  const auto folded = folded_.find(name);
  if (folded == folded_.end()) return OnnxOrigin::kComputed;
  bool has_buffer = false;
  for (const std::string& source : folded->second) {
    const auto found = signature_.find(source);
    if (found == signature_.end()) continue;
    if (found->second == OnnxOrigin::kParameter) return OnnxOrigin::kParameter;
    has_buffer = true;
  }
  return has_buffer ? OnnxOrigin::kBuffer : OnnxOrigin::kNumbers;
}

OnnxOrigin OnnxOrigins::by_name(const io::StoredTensor& tensor, const std::string& name) const {
  const bool is_number = tensor.count() == 1;
  if (is_own_ && name.starts_with("constant/")) return OnnxOrigin::kNumbers;
  if (is_own_ && name.ends_with(".value")) return OnnxOrigin::kBuffer;
  if (buffers_.contains(&tensor)) return OnnxOrigin::kBuffer;
  if (is_statistic(name) || frozen_norms_.contains(owner_of(name))) return OnnxOrigin::kBuffer;
  const bool is_slope = name.starts_with("onnx::PRelu_");  // never a number of an expression
  if (is_anonymous(name))
    return is_number && !is_slope ? OnnxOrigin::kNumbers : OnnxOrigin::kComputed;
  // Other programs than PyTorch name the numbers of expressions as well.
  const bool is_named =
      !tensor.shape.empty() && (name.ends_with(".weight") || name.ends_with(".bias"));
  return !is_number || is_named || is_torch_ || is_own_ ? OnnxOrigin::kParameter
                                                        : OnnxOrigin::kNumbers;
}

OnnxOrigin OnnxOrigins::of(const io::StoredTensor& tensor, const std::string& name) const {
  return are_known() ? by_signature(name) : by_name(tensor, name);
}

std::string OnnxOrigins::parameter_of(const std::string& argument) const {
  if (!argument.starts_with('%')) return "";
  const auto found = placeholders_.find(argument.substr(1));
  const bool is_parameter =
      found != placeholders_.end() && signature_.at(found->second) == OnnxOrigin::kParameter;
  return is_parameter ? found->second : "";
}

// The function has its mean and variance in the places of the node's.
std::string OnnxOrigins::statistic_read(const io::ReadNode& node, std::size_t input) const {
  constexpr std::size_t kMean = 3;
  if (node.type != "BatchNormalization" || input < kMean) return "";
  const OnnxCall call = read_onnx_call(node.call);
  if (!call.is_batch_norm()) return "";
  const std::string read = input < call.arguments.size() ? call.arguments[input] : "";
  const auto found = placeholders_.find(read.substr(read.starts_with('%') ? 1 : 0));
  return found == placeholders_.end() ? node.outputs.at(0) : found->second;
}

// E.g. a product that the exporter has computed from the weight, which the bias is added to.
bool OnnxOrigins::is_computed_by(const OnnxCall& call, const std::string& name,
                                 const std::string& argument) const {
  const std::vector<std::string> sources = parameters_in(name);
  return std::ranges::any_of(parameters_of(call), [&](const std::string& read) {
    return read != argument && std::ranges::find(sources, read) != sources.end();
  });
}

std::string OnnxOrigins::parameter_read(const io::ReadNode& node, std::size_t input,
                                        const std::string& name) const {
  if (has_folded_norm(node)) return name;  // computed from several
  const OnnxCall call = read_onnx_call(node.call);
  const std::size_t argument = argument_read(call, node, input);
  if (argument > 0 && argument < call.arguments.size()) {
    std::string found = parameter_of(call.arguments[argument]);
    return found.empty() || is_computed_by(call, name, found) ? name : found;
  }
  const bool is_computed = folded_.contains(name) && !signature_.contains(name);
  const bool is_product_and_sum = call.function.starts_with("aten.addmm.");
  if (is_computed || (has_weight_input(node) && !is_product_and_sum)) return name;
  const std::vector<std::string> read = parameters_of(call);
  if (std::ranges::find(read, name) != read.end()) return name;
  if (read.size() == 1) return read[0];
  const auto namesake = std::ranges::find(read, own_name(name), own_name);
  return namesake == read.end() ? name : *namesake;
}

std::vector<std::string> OnnxOrigins::parameters_of(const OnnxCall& call) const {
  std::vector<std::string> found;
  for (const std::string& text : call.arguments)
    if (std::string name = parameter_of(text); !name.empty()) found.push_back(std::move(name));
  return found;
}

std::string OnnxOrigins::bias_of(const io::ReadNode& node) const {
  const OnnxCall call = read_onnx_call(node.call);
  const std::size_t argument = bias_argument(call);
  const bool is_sum = call.is_weighted_sum() || has_folded_norm(node);
  if (!is_sum || argument >= call.arguments.size()) return "";
  return parameter_of(call.arguments[argument]);
}

std::vector<std::string> OnnxOrigins::computed_from(const std::string& name) const {
  const auto folded = folded_.find(name);
  return folded == folded_.end() ? std::vector<std::string>{} : folded->second;
}

std::vector<std::string> OnnxOrigins::parameters_in(const std::string& name) const {
  std::vector<std::string> found;
  const auto folded = folded_.find(name);
  if (folded == folded_.end() || signature_.contains(name)) return found;
  for (const std::string& source : folded->second)
    if (const auto known = signature_.find(source);
        known != signature_.end() && known->second == OnnxOrigin::kParameter)
      found.push_back(source);
  return found;
}

}  // namespace models
