#include "models/onnx_origins/onnx_calls.h"

#include <algorithm>
#include <string_view>

namespace models {
namespace {

// The parts of a list of arguments that commas separate, up to the bracket that closes it.
std::vector<std::string> split_arguments(std::string_view text) {
  std::vector<std::string> parts;
  std::string part;
  int depth = 0;
  const auto finish = [&] {
    const std::size_t begin = part.find_first_not_of(' ');
    if (begin != std::string::npos) parts.push_back(part.substr(begin));
    part.clear();
  };
  for (const char c : text) {
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}')
      if (--depth < 0) break;
    if (c == ',' && depth == 0)
      finish();
    else
      part += c;
  }
  finish();
  return parts;
}

// The places of the weight and the bias of a layer in the arguments of a function.
struct WeightedFunction {
  std::string_view name;  // the beginning of its name, after "aten."
  std::size_t weight;
};
constexpr WeightedFunction kWeighted[] = {
    {"linear.", 1},     {"conv", 1},           {"layer_norm.", 2},
    {"group_norm.", 2}, {"batch_norm.", 1},    {"_native_batch_norm", 1},
    {"prelu.", 1},      {"instance_norm.", 1}, {"rms_norm.", 2},
};

bool is_of(const OnnxCall& call, std::string_view name) {
  return call.function.starts_with("aten.") && call.function.substr(5).starts_with(name);
}

}  // namespace

bool OnnxCall::is_weighted_sum() const { return is_of(*this, "linear.") || is_of(*this, "conv"); }

bool OnnxCall::is_batch_norm() const {
  return is_of(*this, "batch_norm.") || is_of(*this, "_native_batch_norm");
}

// "%linear : [num_users=1] = call_function[target=torch.ops.aten.linear.default](args = (%x,
// %p_fc_weight, %p_fc_bias), kwargs = {})"
OnnxCall read_onnx_call(const std::string& text) {
  constexpr std::string_view kTarget = "call_function[target=torch.ops.", kArguments = "](args = (";
  OnnxCall call;
  const std::size_t target = text.find(kTarget), begin = text.find(kArguments, target);
  if (target == std::string::npos || begin == std::string::npos) return call;
  call.function = text.substr(target + kTarget.size(), begin - target - kTarget.size());
  call.arguments = split_arguments(std::string_view(text).substr(begin + kArguments.size()));
  return call;
}

bool has_folded_norm(const io::ReadNode& node) {
  if (node.rule.find("FuseBatchNormInto") != std::string::npos) return true;
  // Another rule may have changed the node afterwards, e.g. one that leaves out a bias of 0.
  const bool is_sum = node.type == "Conv" || node.type == "ConvTranspose" || node.type == "Gemm";
  return is_sum && read_onnx_call(node.call).is_batch_norm();
}

std::size_t weight_argument(const OnnxCall& call) {
  for (const WeightedFunction& function : kWeighted)
    if (is_of(call, function.name)) return function.weight;
  return 0;
}

std::size_t bias_argument(const OnnxCall& call) {
  const std::size_t weight = weight_argument(call);
  const bool has_none = weight == 0 || is_of(call, "prelu.") || is_of(call, "rms_norm.");
  return has_none ? 0 : weight + 1;
}

}  // namespace models
