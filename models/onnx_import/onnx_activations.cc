// Activation functions, products, which are part of some of them, and limits.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "io/base/text/text_parts.h"
#include "models/onnx_import/onnx_operators.h"
#include "models/onnx_parameters/onnx_sharing.h"
#include "models/onnx_translation/onnx_combined.h"
#include "models/onnx_translation/onnx_plain.h"

namespace models {
namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

// Adds a layer whose output has the shape of its input, which may be a parameter.
void set_elementwise(OnnxOperator& op, const std::string& kind, Options options = {}) {
  const bool is_activation = op.is_activation(0);
  if (!is_activation) op.all().values.set(op.node().inputs[0], constant_value(op, 0));
  OnnxActivation value = is_activation ? op.activation(0) : plain_input(op, 0);
  value.layer = op.add_layer(kind, {value.layer}, std::move(options));
  if (is_activation) return op.set(std::move(value));
  set_plain(op, std::move(value));
}

std::string quoted(const std::string& word) { return "\"" + word + "\""; }

void set_activation(OnnxOperator& op, const std::string& function) {
  set_elementwise(op, "activation", {{"function", quoted(function)}});
}

void translate_relu(OnnxOperator& op) { set_elementwise(op, "relu"); }
void translate_sigmoid(OnnxOperator& op) { set_activation(op, "sigmoid"); }
void translate_hard_swish(OnnxOperator& op) { set_activation(op, "hard_swish"); }
void translate_tanh(OnnxOperator& op) { set_activation(op, "tanh"); }

void translate_gelu(OnnxOperator& op) {
  const std::string approximate = op.text("approximate", "none");
  if (approximate != "none" && approximate != "tanh")
    throw OnnxUnsupported("approximate '" + approximate + "', expected none or tanh");
  set_elementwise(op, "gelu", {{"approximate", quoted(approximate)}});
}

// Adds a clipping layer; an infinite limit is none. A second limit below the first one applies
// after it.
void add_clip(OnnxOperator& op, OnnxActivation& value, double low, double high) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (low >= high && std::isfinite(low) && std::isfinite(high)) {
    add_clip(op, value, low, kInfinity);
    return add_clip(op, value, -kInfinity, high);
  }
  if (!(low < high))
    throw OnnxUnsupported("the limits " + base::shortest_text(low) + " and " +
                          base::shortest_text(high) + ", expected the first below the second");
  Options options{{"function", quoted("clip")}};
  if (std::isfinite(low)) options.emplace_back("low", base::shortest_text(low));
  if (std::isfinite(high)) options.emplace_back("high", base::shortest_text(high));
  value.layer = op.add_layer("activation", {value.layer}, std::move(options));
}

// PyTorch's slope is 1 / 6, ONNX's default is 0.2.
void translate_hard_sigmoid(OnnxOperator& op) {
  const double alpha = op.real("alpha", 0.2), beta = op.real("beta", 0.5);
  if (std::abs(alpha - 1.0 / 6) < 1e-6 && beta == 0.5) return set_activation(op, "hard_sigmoid");
  OnnxActivation value = op.activation(0);
  value.layer =
      op.add_layer("scale_shift", {value.layer},
                   {{"scale", base::shortest_text(alpha)}, {"shift", base::shortest_text(beta)}});
  add_clip(op, value, 0, 1);
  op.set(std::move(value));
}

int add_relu(OnnxOperator& op, int layer) { return op.add_layer("relu", {layer}); }
int add_negative(OnnxOperator& op, int layer) {
  return op.add_layer("scale_shift", {layer}, {{"scale", "-1"}});
}

// gamma * x above 0, and gamma * alpha * (exp(x) - 1) below: relu(x) + alpha * elu(min(x, 0)). As
// in PyTorch, the gradient at 0 is that of the second one.
void set_elu(OnnxOperator& op, double alpha, double gamma) {
  OnnxActivation above = materialized(op, plain_input(op, 0)), below = above;
  if (alpha == 1) {
    add_function(op, above, "elu");
  } else {
    above.layer = add_relu(op, above.layer);
    add_clip(op, below, -std::numeric_limits<double>::infinity(), 0);
    add_function(op, below, "elu");
    below.plain.scale = alpha;
    above = combined(op, "add", std::move(above), std::move(below));
  }
  above.plain.scale *= gamma;
  set_plain(op, std::move(above));
}

void translate_elu(OnnxOperator& op) {
  const double alpha = op.real("alpha", 1);
  if (alpha == 1) return set_activation(op, "elu");
  set_elu(op, alpha, 1);
}

// PyTorch's number if the file has it as a float.
double selu_number(OnnxOperator& op, const char* name, double torch) {
  const double found = op.real(name, torch);
  return static_cast<float>(found) == static_cast<float>(torch) ? torch : found;
}

void translate_selu(OnnxOperator& op) {
  set_elu(op, selu_number(op, "alpha", 1.6732632423543772848),
          selu_number(op, "gamma", 1.0507009873554804935));
}

// max(0, x) + min(0, alpha * (exp(x / alpha) - 1)) = alpha * elu(x / alpha)
void translate_celu(OnnxOperator& op) {
  const double alpha = op.real("alpha", 1);
  if (!(alpha > 0 && std::isfinite(alpha)))
    throw OnnxUnsupported("alpha " + base::shortest_text(alpha) + ", expected a number above 0");
  OnnxActivation value = plain_input(op, 0);
  value.plain.scale /= alpha;
  value = materialized(op, std::move(value));
  add_function(op, value, "elu");
  value.plain.scale = alpha;
  set_plain(op, std::move(value));
}

// An exporter may have given the slope further dimensions; it is the same parameter.
OnnxActivation slope_value(OnnxOperator& op, std::size_t index) {
  OnnxConstant slope = op.constant(index);
  const std::vector<std::string> sources = op.all().origins.parameters_in(slope.tensor->name);
  if (sources.size() == 1 && slope.alias.empty()) slope.alias = sources[0];
  set_reader(op, slope);
  return parameter_value(op, slope);
}

// relu(x) - slope relu(-x)
void translate_prelu(OnnxOperator& op) {
  OnnxActivation above = materialized(op, plain_input(op, 0)), below = above;
  above.layer = add_relu(op, below.layer);
  below.layer = add_relu(op, add_negative(op, below.layer));
  const auto* stored = std::get_if<OnnxConstant>(&op.input(1));
  const bool is_parameter = stored != nullptr && is_trained_weight(*stored);
  below = combined(op, "multiply", std::move(below),
                   is_parameter ? slope_value(op, 1) : plain_input(op, 1));
  set_plain(op, combined(op, "subtract", std::move(above), std::move(below)));
}

// The larger or the smaller one of two values. Equal ones share the gradient, as PyTorch's do; the
// half of their sum is also the result if one of them is not a number.
OnnxActivation chosen(OnnxOperator& op, const OnnxActivation& a, const OnnxActivation& b,
                      bool is_max) {
  const Options comparison{{"function", quoted(is_max ? "greater" : "less")}};
  OnnxActivation first = a, second = b;
  first.plain.scale *= 0.5;
  second.plain.scale *= 0.5;
  const OnnxActivation both = combined(op, "add", std::move(first), std::move(second));
  const auto preferred = [&](const OnnxActivation& value, const OnnxActivation& other,
                             const OnnxActivation& otherwise) {
    const OnnxActivation is_chosen = combined_all(op, {"compare", comparison}, {value, other});
    return combined_all(op, {"where"}, {is_chosen, value, otherwise});
  };
  return preferred(a, b, preferred(b, a, both));
}

// The largest rank of the inputs that are no constants.
std::size_t rank_of_values(OnnxOperator& op) {
  std::size_t rank = 0;
  for (std::size_t i = 0; i < op.node().inputs.size(); ++i)
    if (const auto* value = std::get_if<OnnxActivation>(&op.input(i)))
      rank = std::max(rank, value->shape.size());
  return rank;
}

// The larger or smaller ones of values, and of numbers, which clip.
void translate_extreme(OnnxOperator& op) {
  const bool is_max = op.node().type == "Max";
  const double infinity = std::numeric_limits<double>::infinity();
  double limit = is_max ? -infinity : infinity;
  std::vector<OnnxActivation> values;
  const std::size_t rank = rank_of_values(op);
  for (std::size_t i = 0; i < op.node().inputs.size(); ++i) {
    const auto* constant = std::get_if<OnnxConstant>(&op.input(i));
    const bool may_be_number = constant == nullptr || constant->tensor->count() == 1;
    const bool is_number = may_be_number && !op.is_activation(i) && op.is_computable(i) &&
                           op.tensor(i).is_real && op.tensor(i).reals.size() == 1 &&
                           op.tensor(i).shape.size() <= rank;
    if (is_number)
      limit = is_max ? std::fmax(limit, op.number(i)) : std::fmin(limit, op.number(i));
    else
      values.push_back(plain_input(op, i));
  }
  if (values.empty()) throw OnnxUnsupported("of numbers alone");
  OnnxActivation value = materialized(op, values[0]);
  for (std::size_t i = 1; i < values.size(); ++i)
    value = chosen(op, value, materialized(op, values[i]), is_max);
  if (std::isfinite(limit)) {
    value = materialized(op, std::move(value));
    if (is_max && limit == 0)
      value.layer = add_relu(op, value.layer);
    else
      add_clip(op, value, is_max ? limit : -infinity, is_max ? infinity : limit);
  }
  set_plain(op, std::move(value));
}

void translate_leaky_relu(OnnxOperator& op) {
  const double slope = op.real("alpha", 0.01);
  if (!(slope >= 0 && std::isfinite(slope)))
    throw OnnxUnsupported("alpha " + base::shortest_text(slope) + ", expected 0 or more");
  set_elementwise(op, "activation",
                  {{"function", quoted("leaky_relu")}, {"slope", base::shortest_text(slope)}});
}

void translate_clip(OnnxOperator& op) {
  const bool from_zero = op.has_input(1) && op.number(1) == 0;
  const bool has_max = op.has_input(2) && std::isfinite(op.number(2));
  if (from_zero && !has_max) return translate_relu(op);
  if (from_zero && op.number(2) == 6) return set_activation(op, "relu6");
  const double infinity = std::numeric_limits<double>::infinity();
  const double low = op.has_input(1) ? op.number(1) : -infinity,
               high = op.has_input(2) ? op.number(2) : infinity;
  if (!op.is_activation(0)) op.all().values.set(op.node().inputs[0], constant_value(op, 0));
  OnnxActivation value = op.activation(0);
  add_clip(op, value, low, high);
  op.set(std::move(value));
}

// Whether this input is that function of the other one.
bool is_gate(OnnxOperator& op, std::size_t index, const std::string& function) {
  const auto& gate = std::get<OnnxActivation>(op.input(index));
  const auto& other = std::get<OnnxActivation>(op.input(1 - index));
  const int at = gate.layer;
  const OnnxPlain places = as_plain(gate).plain, others = as_plain(other).plain;
  if (at < 0 || places.scale != 1 || others.scale != 1 || !has_same_places(places, others))
    return false;
  const OnnxListedLayer& layer = op.all().layers.at(at);
  return layer.kind == "activation" && layer.options.front().second == quoted(function) &&
         layer.inputs[0] == other.layer;
}

}  // namespace

// x * sigmoid(x) is SiLU, for which ONNX has no operator, and x * hard_sigmoid(x) hard swish. The
// layer of the inner function is left out if nothing else reads it.
bool set_gated(OnnxOperator& op) {
  constexpr const char* kGates[][2] = {{"sigmoid", "silu"}, {"hard_sigmoid", "hard_swish"}};
  for (const auto& [inner, whole] : kGates)
    for (const std::size_t gate : {0U, 1U}) {
      if (!is_gate(op, gate, inner)) continue;
      OnnxActivation value = op.activation(1 - gate);
      value.layer = op.add_layer("activation", {value.layer}, {{"function", quoted(whole)}});
      op.set(std::move(value));
      return true;
    }
  return false;
}

std::vector<OnnxOperatorRow> onnx_activations() {
  return {{"Relu", translate_relu},
          {"Gelu", translate_gelu},
          {"Clip", translate_clip},
          {"Sigmoid", translate_sigmoid},
          {"HardSigmoid", translate_hard_sigmoid},
          {"HardSwish", translate_hard_swish},
          {"LeakyRelu", translate_leaky_relu},
          {"Elu", translate_elu},
          {"Selu", translate_selu},
          {"Celu", translate_celu},
          {"PRelu", translate_prelu},
          {"Max", translate_extreme},
          {"Min", translate_extreme},
          {"Tanh", translate_tanh}};
}

}  // namespace models
