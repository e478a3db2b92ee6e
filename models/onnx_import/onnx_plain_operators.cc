// Dropout, means over pixels, comparisons, and choices by them.
#include <algorithm>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "io/base/text/text_parts.h"
#include "models/onnx_import/onnx_folding.h"
#include "models/onnx_import/onnx_operators.h"
#include "models/onnx_tokens/onnx_masks.h"
#include "models/onnx_tokens/onnx_tokens.h"
#include "models/onnx_translation/onnx_combined.h"
#include "models/onnx_translation/onnx_plain.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// The rate acts in training alone, as in the engine; an export in eval mode has no Dropout.
void translate_dropout(OnnxOperator& op) {
  const double rate = op.has_input(1) ? op.number(1) : 0.5;
  if (rate == 0) return op.set(op.activation(0));
  OnnxActivation value = op.activation(0);
  value.layer = op.add_layer("dropout", {value.layer}, {{"rate", base::shortest_text(rate)}});
  op.set(std::move(value));
}

// The axes are an attribute up to operator set 17, then an input.
void translate_reduce_mean(OnnxOperator& op) {
  Numbers axes = op.has_input(1) ? op.numbers(1) : op.integers("axes").value_or(Numbers{});
  if (!op.is_activation(0)) return translate_reduction(op, axes);
  const Numbers shape = op.activation(0).shape;
  const auto rank = std::ssize(shape);
  for (std::int64_t& axis : axes)
    if (axis < 0) axis += rank;
  std::ranges::sort(axes);
  if (rank != 4 || shape[0] != kOnnxBatch || axes != Numbers{2, 3})
    return translate_reduction(op, axes);
  op.set(global_average(op, image_or_vector(op, 0), op.integer("keepdims", 1) != 0));
}

// Adds `part` to the sum.
void add_to_sum(OnnxOperator& op, std::optional<OnnxActivation>& sum, OnnxActivation part) {
  sum = sum ? combined(op, "add", std::move(*sum), std::move(part)) : std::move(part);
}

// By a constant condition, values are multiplied by 1 or 0; numbers are added at the chosen
// positions, so that they may be infinite.
void translate_constant_where(OnnxOperator& op) {
  const OnnxTensor condition = op.tensor(0);
  if (condition.is_real) throw OnnxUnsupported("a condition of floats");
  expect_known_choice(condition);
  if (set_only_choice(op, condition)) return;
  const int scores = masked_scores(op, condition);
  std::optional<OnnxActivation> sum;
  for (const std::size_t index : {1U, 2U}) {
    OnnxTensor mask = condition;
    for (std::int64_t& value : mask.integers) value = (value != 0) == (index == 1) ? 1 : 0;
    if (mask.shape.empty()) mask.shape = {1};
    if (op.is_activation(index) || !op.is_computable(index)) {
      add_to_sum(
          op, sum,
          combined(op, "multiply", plain_input(op, index), tensor_value(op, std::move(mask))));
      continue;
    }
    const OnnxTensor numbers = op.tensor(index);
    if (!numbers.is_real) throw OnnxUnsupported("integers, expected floats");
    const std::vector<std::int64_t> shape = broadcast_shape(mask.shape, numbers.shape);
    const OnnxTensor places = expanded(op, mask, shape);
    OnnxTensor chosen_numbers = expanded(op, numbers, shape);
    for (std::size_t i = 0; i < places.integers.size(); ++i)
      if (places.integers[i] == 0) chosen_numbers.reals[i] = 0;
    add_to_sum(op, sum, tensor_value(op, std::move(chosen_numbers)));
  }
  if (scores >= 0) op.all().causal[sum->layer] = scores;
  set_plain(op, std::move(*sum));
}

// The input as a plain value; a number becomes a constant of one element.
OnnxActivation value_of(OnnxOperator& op, std::size_t index) {
  if (op.is_activation(index) || !op.is_computable(index)) return plain_input(op, index);
  OnnxTensor numbers = op.tensor(index);
  if (numbers.shape.empty()) numbers.shape = {1};
  return tensor_value(op, std::move(numbers));
}

OnnxActivation compared(OnnxOperator& op, const char* function, OnnxActivation a,
                        OnnxActivation b) {
  const std::string name = std::string("\"") + function + "\"";
  return combined_all(op, {"compare", {{"function", name}}}, {std::move(a), std::move(b)});
}

// 1 - x, for x of 0 or 1.
OnnxActivation negated(OnnxOperator& op, OnnxActivation value) {
  value = materialized(op, std::move(value));
  value.layer = op.add_layer("scale_shift", {value.layer}, {{"scale", "-1"}, {"shift", "1"}});
  return value;
}

void translate_comparison(OnnxOperator& op) {
  constexpr const char* kNames[][2] = {{"Greater", "greater"},
                                       {"GreaterOrEqual", "greater_equal"},
                                       {"Less", "less"},
                                       {"LessOrEqual", "less_equal"},
                                       {"Equal", "equal"}};
  for (const auto& [type, function] : kNames)
    if (op.node().type == type)
      set_plain(op, compared(op, function, value_of(op, 0), value_of(op, 1)));
}

// Truths are 1 and 0: `and` is a product, `or` the negation of that of negations.
void translate_logic(OnnxOperator& op) {
  const std::string& type = op.node().type;
  if (type == "Not") return set_plain(op, negated(op, value_of(op, 0)));
  OnnxActivation a = value_of(op, 0), b = value_of(op, 1);
  if (type == "Xor")
    return set_plain(op, negated(op, compared(op, "equal", std::move(a), std::move(b))));
  const bool is_or = type == "Or";
  if (is_or) a = negated(op, std::move(a)), b = negated(op, std::move(b));
  OnnxActivation both = combined(op, "multiply", std::move(a), std::move(b));
  set_plain(op, is_or ? negated(op, std::move(both)) : std::move(both));
}

// Whether the layer's numbers are known to be 0 or 1: comparisons, their products and negations.
bool has_truths(const OnnxLayerList& layers, int layer) {
  const std::vector<std::pair<std::string, std::string>> negation{{"scale", "-1"}, {"shift", "1"}};
  std::vector<int> left{layer};
  std::unordered_set<int> seen{layer};
  while (!left.empty()) {
    const int at = left.back();
    left.pop_back();
    if (at < 0) return false;
    const OnnxListedLayer& from = layers.at(at);
    if (from.kind == "compare") continue;
    const bool is_negation = from.kind == "scale_shift" && from.options == negation;
    if (from.kind != "multiply" && !is_negation) return false;
    for (const int input : from.inputs)
      if (seen.insert(input).second) left.push_back(input);
  }
  return true;
}

// ONNX's types: 1 float, 9 booleans, 11 double. Constants are computed elsewhere.
void translate_cast(OnnxOperator& op) {
  if (keep_tokens(op)) return;
  const std::int64_t to = op.integer("to", 0);
  if (to == 1 || to == 11) return op.set(op.input(0));
  if (to != 9)
    throw OnnxUnsupported("a conversion to ONNX's type " + std::to_string(to) +
                          ", expected 1 (float), 9 (bool) or 11 (double)");
  OnnxActivation value = plain_input(op, 0);
  if (value.plain.scale == 1 && has_truths(op.all().layers, value.layer))
    return set_plain(op, std::move(value));
  OnnxTensor zero{.shape = {1}, .integers = {0}, .reals = {}};
  set_plain(
      op, negated(op, compared(op, "equal", std::move(value), tensor_value(op, std::move(zero)))));
}

// The softmax of scores is a number.
void translate_is_nan(OnnxOperator& op) {
  if (set_never_nan(op)) return;
  const OnnxActivation value = materialized(op, plain_input(op, 0));
  set_plain(op, negated(op, compared(op, "equal", value, value)));
}

void translate_where(OnnxOperator& op) {
  if (!op.is_activation(0) && op.is_computable(0)) return translate_constant_where(op);
  OnnxActivation condition = value_of(op, 0), first = value_of(op, 1), second = value_of(op, 2);
  set_plain(
      op, combined_all(op, {"where"}, {std::move(condition), std::move(first), std::move(second)}));
}

}  // namespace

std::vector<OnnxOperatorRow> onnx_plain_operators() {
  std::vector<OnnxOperatorRow> rows{{"Dropout", translate_dropout},
                                    {"ReduceMean", translate_reduce_mean},
                                    {"Cast", translate_cast},
                                    {"IsNaN", translate_is_nan},
                                    {"Where", translate_where}};
  for (const char* type : {"Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"})
    rows.push_back({type, translate_comparison});
  for (const char* type : {"And", "Or", "Xor", "Not"}) rows.push_back({type, translate_logic});
  return rows;
}

}  // namespace models
