#include "models/onnx_origins/onnx_origins.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>
#include <utility>

namespace models {
namespace {

bool is_statistic(const std::string& name) {
  return name.ends_with(".running_mean") || name.ends_with(".running_var") ||
         name.ends_with(".num_batches_tracked");
}

// "p_fc_weight: PARAMETER target='fc.weight'"; inputs come first, outputs may repeat a target.
void read_signature_line(const std::string& line,
                         std::unordered_map<std::string, OnnxOrigin>& signature) {
  const std::size_t kind = line.find(": "), target = line.find(" target='");
  if (kind == std::string::npos || target == std::string::npos || target < kind + 2) return;
  const std::size_t end = line.find('\'', target + 9);
  if (end == std::string::npos) return;
  const bool is_parameter = line.substr(kind + 2, target - kind - 2) == "PARAMETER";
  signature.try_emplace(line.substr(target + 9, end - target - 9),
                        is_parameter ? OnnxOrigin::kParameter : OnnxOrigin::kBuffer);
}

std::string owner_of(const std::string& name) { return name.substr(0, name.rfind('.')); }

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

bool OnnxOrigins::is_anonymous(const std::string& name) const {
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  const bool is_counted = name.starts_with("val_") && name.size() > 4 &&
                          std::all_of(name.begin() + 4, name.end(), is_digit);
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
    for (std::string line; std::getline(lines, line);) read_signature_line(line, signature_);
  }
  for (const auto& [name, sources] : graph.folded_from) folded_[name] = quoted_words(sources);
  for (const io::ReadNode& node : graph.nodes)
    for (const std::string& input : node.inputs)
      if (is_statistic(input) && node.type != "BatchNormalization" && node.type != "Identity")
        frozen_norms_.insert(owner_of(input));
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
  if (is_anonymous(name)) return is_number ? OnnxOrigin::kNumbers : OnnxOrigin::kComputed;
  // Other programs than PyTorch name the numbers of expressions as well.
  const bool is_named =
      !tensor.shape.empty() && (name.ends_with(".weight") || name.ends_with(".bias"));
  return !is_number || is_named || is_torch_ || is_own_ ? OnnxOrigin::kParameter
                                                        : OnnxOrigin::kNumbers;
}

OnnxOrigin OnnxOrigins::of(const io::StoredTensor& tensor, const std::string& name) const {
  return are_known() ? by_signature(name) : by_name(tensor, name);
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

std::string OnnxOrigins::parameter_of(const std::string& module, const std::string& name) const {
  for (std::size_t dot = 0; dot != std::string::npos; dot = name.find('.', dot + 1)) {
    const std::string own = module + "." + name.substr(dot == 0 ? 0 : dot + 1);
    const auto found = signature_.find(own);
    if (found != signature_.end() && found->second == OnnxOrigin::kParameter) return own;
  }
  return name;
}

}  // namespace models
