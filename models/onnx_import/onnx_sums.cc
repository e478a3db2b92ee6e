// Sums and products of any tensors, means and maxima, and functions of their elements.
#include <algorithm>
#include <cmath>
#include <optional>

#include "io/base/text/text_parts.h"
#include "models/onnx_import/onnx_operators.h"
#include "models/onnx_parameters/onnx_sharing.h"
#include "models/onnx_tokens/onnx_masks.h"
#include "models/onnx_translation/onnx_combined.h"
#include "models/onnx_translation/onnx_plain.h"
#include "models/onnx_windows/onnx_window_operators.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// The dimension of the numbers that a bias of this layer has; nothing if it has one, or the value
// is no longer the layer's output as it is.
std::optional<std::size_t> bias_dimension(const OnnxListedLayer& layer, const OnnxPlain& plain) {
  const std::size_t rank = plain.dims.size();
  const bool is_dense = layer.kind == "dense" && rank >= 2,
             is_conv = layer.kind == "conv2d" && rank == 4;
  if ((!is_dense && !is_conv) || layer.arrays.size() != 1 || plain.scale != 1) return std::nullopt;
  const std::size_t dim = is_dense ? rank - 1 : 1;
  if (stored_groups(plain).back() != plain.dims[dim]) return std::nullopt;
  return dim;
}

// A constant that is added to the output of a layer without a bias is its bias: Linear as MatMul
// and Add. Returns false for other sums.
bool add_bias(OnnxOperator& op, std::size_t index) {
  const auto* stored = std::get_if<OnnxConstant>(&op.input(index));
  const auto* found = std::get_if<OnnxActivation>(&op.input(1 - index));
  if (stored == nullptr || !is_trained_weight(*stored) || found == nullptr ||
      !is_only_reader(op, 1 - index))
    return false;
  const OnnxPlain plain = as_plain(*found).plain;
  const auto dim = bias_dimension(op.all().layers.at(found->layer), plain);
  if (!dim) return false;
  const std::int64_t channels = plain.stored.back();
  const OnnxConstant bias = op.constant(index);
  if (is_apart(op.all(), bias) ||
      !is_bias_of(op, op.all(), op.all().layers.at(found->layer).arrays[0].from, bias))
    return false;
  Numbers shape = shape_of(bias), wanted(plain.dims.size() - *dim, 1);
  if (shape.size() > plain.dims.size()) return false;
  wanted[0] = channels;
  while (shape.size() > wanted.size() && shape[0] == 1) shape.erase(shape.begin());
  if (shape != wanted) return false;
  OnnxListedLayer& layer = op.all().layers.at(found->layer);
  for (auto& [key, text] : layer.options)
    if (key == "bias") text = "true";
  const OnnxConstant& weight = layer.arrays[0].from;
  if (!initializer_name(weight).ends_with(".weight") && !has_computed_numbers(weight))
    op.all().layers.rename(found->layer, initializer_name(bias));
  layer.arrays.push_back({"bias", bias, {channels}});
  tie_to_owner(op.all(), found->layer);
  op.set(OnnxActivation(*found));
  return true;
}

// Returns the input as a number; none if it has several or more dimensions than the other input, or
// is not constant.
std::optional<double> scalar(OnnxOperator& op, std::size_t index) {
  const auto* constant = std::get_if<OnnxConstant>(&op.input(index));
  if (constant != nullptr && constant->tensor->count() != 1) return std::nullopt;
  if (op.is_activation(index) || !op.is_computable(index)) return std::nullopt;
  const OnnxTensor found = op.tensor(index);
  const auto* other = std::get_if<OnnxActivation>(&op.input(1 - index));
  if (other != nullptr && found.shape.size() > other->shape.size()) return std::nullopt;
  if (found.reals.size() == 1) return found.reals[0];
  if (found.integers.size() == 1 && !is_onnx_symbol(found.integers[0]))
    return static_cast<double>(found.integers[0]);
  return std::nullopt;
}

void add_scale_shift(OnnxOperator& op, OnnxActivation& value, double scale, double shift) {
  value.layer =
      op.add_layer("scale_shift", {value.layer},
                   {{"scale", base::shortest_text(scale)}, {"shift", base::shortest_text(shift)}});
}

// A sum, product ... of a tensor and a number. Factors wait until a layer needs the numbers.
void combine_with_number(OnnxOperator& op, OnnxActivation value, double number, bool is_first) {
  const std::string& type = op.node().type;
  if (type == "Mul") {
    value.plain.scale *= number;
  } else if (type == "Div" && !is_first) {
    value.plain.scale /= number;
  } else if (type == "Div") {
    value = materialized(op, std::move(value));
    add_function(op, value, "reciprocal");
    value.plain.scale = number;
  } else {
    const bool negates = type == "Sub" && is_first;
    const double scale = negates ? -value.plain.scale : value.plain.scale;
    value.plain.scale = 1;
    value = materialized(op, std::move(value));
    add_scale_shift(op, value, scale, type == "Sub" && !is_first ? -number : number);
  }
  if (!std::isfinite(value.plain.scale)) throw OnnxUnsupported("a factor that is not finite");
  set_plain(op, std::move(value));
}

std::optional<double> option_of(const OnnxListedLayer& layer, const std::string& key) {
  for (const auto& [name, text] : layer.options)
    if (name == key) return std::stod(text);
  return std::nullopt;
}

bool is_near(std::optional<double> value, double wanted) {
  return value && std::abs(*value - wanted) < 1e-6;
}

// x (1 + erf(x / sqrt(2))), twice the GELU, as exporters write it for operator sets before 20.
bool set_gelu(OnnxOperator& op) {
  for (const std::size_t inner : {0U, 1U}) {
    OnnxActivation x = as_plain(std::get<OnnxActivation>(op.input(1 - inner)));
    const OnnxActivation sum = as_plain(std::get<OnnxActivation>(op.input(inner)));
    const OnnxLayerList& layers = op.all().layers;
    const auto input_of = [&](int layer, const char* kind) {
      return layer >= 0 && layers.at(layer).kind == kind ? layers.at(layer).inputs.at(0) : -2;
    };
    const int erf = input_of(sum.layer, "scale_shift"), scaled = input_of(erf, "activation"),
              start = input_of(scaled, "scale_shift");
    if (start != x.layer || sum.plain.scale != 1 || !has_same_places(sum.plain, x.plain)) continue;
    if (!is_near(option_of(layers.at(sum.layer), "scale"), 1) ||
        !is_near(option_of(layers.at(sum.layer), "shift"), 1) ||
        layers.at(erf).options[0].second != "\"erf\"" ||
        !is_near(option_of(layers.at(scaled), "scale"), std::sqrt(0.5)) ||
        !is_near(option_of(layers.at(scaled), "shift").value_or(0), 0))
      continue;
    const double scale = x.plain.scale;
    x.plain.scale = 1;
    x = materialized(op, std::move(x));
    x.layer = op.add_layer("gelu", {x.layer}, {{"approximate", "\"none\""}});
    x.plain.scale = 2 * scale;
    set_plain(op, std::move(x));
    return true;
  }
  return false;
}

// A bias, or a mask of scores.
bool set_special_sum(OnnxOperator& op) {
  for (const std::size_t index : {0U, 1U})
    if (add_bias(op, index) || add_mask(op, index)) return true;
  return false;
}

void translate_sum(OnnxOperator& op) {
  const std::string& type = op.node().type;
  if (type == "Add" && set_special_sum(op)) return;
  if ((type == "Add" || type == "Mul") && (set_norm_parameter(op, 0) || set_norm_parameter(op, 1)))
    return;
  for (const std::size_t index : {0U, 1U})
    if (const auto number = scalar(op, index))
      return combine_with_number(op, plain_input(op, 1 - index), *number, index == 0);
  if (type == "Mul" && op.is_activation(0) && op.is_activation(1) &&
      (set_gelu(op) || set_gated(op)))
    return;
  const char* kind = type == "Add"   ? "add"
                     : type == "Sub" ? "subtract"
                     : type == "Mul" ? "multiply"
                                     : "divide";
  set_plain(op, combined(op, kind, plain_input(op, 0), plain_input(op, 1)));
}

// One after another.
void translate_sum_of_all(OnnxOperator& op) {
  OnnxActivation sum = plain_input(op, 0);
  for (std::size_t i = 1; i < op.node().inputs.size(); ++i)
    sum = combined(op, "add", std::move(sum), plain_input(op, i));
  set_plain(op, std::move(sum));
}

void translate_power(OnnxOperator& op) {
  const auto exponent = scalar(op, 1);
  OnnxActivation value = materialized(op, plain_input(op, 0));
  if (!exponent) {  // exp(exponent * log(x)), of numbers above 0
    add_function(op, value, "log");
    value = materialized(op, combined(op, "multiply", std::move(value), plain_input(op, 1)));
    add_function(op, value, "exp");
    return set_plain(op, std::move(value));
  }
  if (*exponent == 2)
    value.layer = op.add_layer("multiply", {value.layer, value.layer});
  else
    value.layer =
        op.add_layer("activation", {value.layer},
                     {{"function", "\"power\""}, {"exponent", base::shortest_text(*exponent)}});
  set_plain(op, std::move(value));
}

void translate_function(OnnxOperator& op) {
  constexpr const char* kNames[][2] = {
      {"Erf", "erf"},   {"Exp", "exp"},           {"Log", "log"},
      {"Sqrt", "sqrt"}, {"Abs", "abs"},           {"Reciprocal", "reciprocal"},
      {"Mish", "mish"}, {"Softplus", "softplus"}, {"Softsign", "softsign"}};
  OnnxActivation value = plain_input(op, 0);
  if (op.node().type == "Neg") {
    value.plain.scale = -value.plain.scale;
    return set_plain(op, std::move(value));
  }
  value = materialized(op, std::move(value));
  for (const auto& [type, function] : kNames)
    if (op.node().type == type) add_function(op, value, function);
  set_plain(op, std::move(value));
}

Numbers axes_of(OnnxOperator& op) {
  return op.has_input(1) ? op.numbers(1) : op.integers("axes").value_or(Numbers{});
}

void translate_any_reduction(OnnxOperator& op) { translate_reduction(op, axes_of(op)); }

void translate_any_log_sum_exp(OnnxOperator& op) { translate_log_sum_exp(op, axes_of(op)); }

}  // namespace

std::vector<OnnxOperatorRow> onnx_sums() {
  std::vector<OnnxOperatorRow> rows{{"Pow", translate_power},
                                    {"Sum", translate_sum_of_all},
                                    {"ReduceLogSumExp", translate_any_log_sum_exp}};
  for (const char* type :
       {"ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare"})
    rows.push_back({type, translate_any_reduction});
  for (const char* type : {"Add", "Sub", "Mul", "Div"}) rows.push_back({type, translate_sum});
  for (const char* type :
       {"Erf", "Exp", "Log", "Sqrt", "Abs", "Neg", "Reciprocal", "Mish", "Softplus", "Softsign"})
    rows.push_back({type, translate_function});
  return rows;
}

}  // namespace models
