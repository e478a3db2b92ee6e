#include "models/onnx_origins/onnx_computations.h"

#include <algorithm>
#include <string_view>
#include <variant>
#include <vector>

#include "models/onnx_origins/onnx_calls.h"

namespace models {
namespace {

// Functions of PyTorch that keep all numbers.
constexpr std::string_view kOrders[] = {
    "t",     "transpose", "permute",   "movedim", "swapaxes", "numpy_t",     "mt",
    "view",  "reshape",   "unsqueeze", "squeeze", "flatten",  "unflatten",   "contiguous",
    "clone", "detach",    "_to_copy",  "to",      "alias",    "_unsafe_view"};
// Functions that choose some of them.
constexpr std::string_view kParts[] = {"select",  "slice",  "split", "split_with_sizes",
                                       "getitem", "narrow", "chunk", "unbind"};
// Functions whose nodes read a parameter in another order than the call.
constexpr std::string_view kReaders[] = {"aten.matmul.",    "aten.mm.",   "aten.bmm.",
                                         "aten.einsum.",    "aten.dot.",  "aten.mv.",
                                         "aten.embedding.", "aten.addmm."};

template <std::size_t N>
bool has_word(const std::string_view (&list)[N], std::string_view word) {
  return std::ranges::find(list, word) != std::end(list);
}

// The function of a value: "transpose" for "transpose_1".
std::string_view torch_function_of(std::string_view value) {
  const std::size_t last = value.find_last_not_of("0123456789");
  if (last != std::string_view::npos && last > 0 && last + 1 < value.size() && value[last] == '_')
    value.remove_suffix(value.size() - last);
  return value;
}

// A value that a call of PyTorch computes on its way has the name val_7.
bool is_inner_value(std::string_view value) { return torch_function_of(value) == "val"; }

bool is_function(std::string_view name, std::string_view function) {
  return name.starts_with("aten.") && name.substr(5, function.size()) == function &&
         name.substr(5 + function.size()).starts_with(".");
}

// Whether the call reads the parameter itself, in the order that its nodes need.
bool reads_in_order(const OnnxCall& call) {
  if (call.function.empty()) return true;
  if (const std::size_t weight = weight_argument(call); weight > 0) {
    const std::size_t bias = bias_argument(call);
    const auto is_parameter = [&](std::size_t argument) {
      return argument < call.arguments.size() && call.arguments[argument].starts_with("%p_");
    };
    return is_parameter(weight) || (bias > 0 && is_parameter(bias));
  }
  return std::ranges::any_of(
             kReaders, [&](std::string_view name) { return call.function.starts_with(name); }) ||
         std::ranges::any_of(
             kOrders, [&](std::string_view name) { return is_function(call.function, name); });
}

// Without a signature, a name alone says that the exporter has computed the tensor: it writes
// matrices of MatMul alone in another order.
OnnxComputation computation_by_name(const OnnxOrigins& origins, const io::ReadNode& reader,
                                    const std::string& tensor) {
  if (!origins.is_torch() || !tensor.starts_with("onnx::") || reader.inputs.size() < 2)
    return OnnxComputation::kNone;
  if (reader.type == "Gather" && reader.inputs[0] == tensor) return OnnxComputation::kNumbers;
  if (reader.inputs[1] != tensor) return OnnxComputation::kNone;
  if (reader.type == "Gemm") {
    const bool is_transposed = std::ranges::any_of(reader.attributes, [](const auto& attribute) {
      const auto* value = std::get_if<std::int64_t>(&attribute.value);
      return attribute.name == "transB" && value != nullptr && *value != 0;
    });
    return is_transposed ? OnnxComputation::kNumbers : OnnxComputation::kNone;
  }
  if (reader.type != "Conv" && reader.type != "ConvTranspose") return OnnxComputation::kNone;
  const bool has_folded_norm = reader.inputs.size() > 2 && reader.inputs[2].starts_with("onnx::");
  return has_folded_norm ? OnnxComputation::kNone : OnnxComputation::kNumbers;
}

}  // namespace

OnnxComputation computation_of(const OnnxOrigins& origins, const io::ReadNode& reader,
                               const std::string& tensor) {
  if (!origins.are_known()) return computation_by_name(origins, reader, tensor);
  const std::vector<std::string> parameters = origins.parameters_in(tensor);
  if (parameters.empty() || has_folded_norm(reader)) return OnnxComputation::kNone;
  if (parameters.size() > 1) return OnnxComputation::kNumbers;
  bool is_part = false, has_function = false;
  const auto is_view = [&](const std::string& value) {
    if (value == parameters[0] || is_inner_value(value)) return true;
    const std::string_view function = torch_function_of(value);
    has_function = true;
    is_part = is_part || has_word(kParts, function);
    return has_word(kOrders, function) || has_word(kParts, function);
  };
  if (!is_view(tensor) || !std::ranges::all_of(origins.computed_from(tensor), is_view))
    return OnnxComputation::kNumbers;
  if (is_inner_value(tensor) && !has_function && !reads_in_order(read_onnx_call(reader.call)))
    return OnnxComputation::kNumbers;
  return is_part ? OnnxComputation::kPart : OnnxComputation::kOrder;
}

bool is_neutral_input(const io::ReadNode& node, std::size_t index) {
  const OnnxCall call = read_onnx_call(node.call);
  const std::size_t weight = weight_argument(call);
  if (weight == 0) return false;
  const bool is_group_norm = call.function.starts_with("aten.group_norm.");
  const bool is_sum = is_group_norm && (node.type == "Mul" || node.type == "Add");
  const bool is_norm = node.type.ends_with("Normalization") && (index == 1 || index == 2);
  if (!is_norm && !is_sum) return false;
  // The norm of the groups has ones and zeros; the numbers of channels follow it.
  if (is_group_norm && node.type == "InstanceNormalization") return true;
  const bool is_weight = is_sum ? node.type == "Mul" : index == 1;
  const std::size_t argument = is_weight ? weight : bias_argument(call);
  return argument >= call.arguments.size() || call.arguments[argument] == "None";
}

}  // namespace models
