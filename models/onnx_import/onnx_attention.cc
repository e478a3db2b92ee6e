// Attention and RMSNormalization of operator set 23, by the operators that earlier sets have for
// them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "io/base/text/text_parts.h"
#include "models/onnx_import/onnx_folding.h"
#include "models/onnx_import/onnx_operators.h"
#include "models/onnx_parameters/onnx_sharing.h"
#include "models/onnx_tokens/onnx_masks.h"
#include "models/onnx_translation/onnx_plain.h"
#include "models/onnx_translation/onnx_tensors.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

[[noreturn]] void refuse_attention(const std::string& problem) {
  throw OnnxUnsupported(problem + "; export with opset_version=18, which has no such operator");
}

// Translates an operator as if the file had other nodes in its place. Their values are named by
// its output.
class OnnxParts {
 public:
  explicit OnnxParts(OnnxOperator& op) : op_(op) {}

  // Adds a node; returns its output.
  std::string add(const std::string& type, std::vector<std::string> inputs,
                  std::vector<io::ReadAttribute> attributes = {}) {
    io::ReadNode node = op_.node();
    node.type = type;
    node.inputs = std::move(inputs);
    node.attributes = std::move(attributes);
    node.outputs = {new_name()};
    OnnxOperator part(op_.all(), node);
    if (!fold_node(part)) find_onnx_operator(type)(part);
    return node.outputs[0];
  }
  std::string add_value(OnnxKnown known) {
    std::string name = new_name();
    op_.all().values.set(name, std::move(known));
    return name;
  }
  std::string number(double value) {
    return add_value(OnnxTensor{.shape = {}, .integers = {}, .reals = {value}, .is_real = true});
  }
  std::string numbers(Numbers values) {
    const std::int64_t count = std::ssize(values);
    return add_value(OnnxTensor{.shape = {count}, .integers = std::move(values), .reals = {}});
  }
  std::string reshaped(const std::string& value, Numbers to) {
    return add("Reshape", {value, numbers(std::move(to))});
  }
  std::string transposed(const std::string& value, Numbers order) {
    return add("Transpose", {value}, {{"perm", std::move(order)}});
  }
  // The shape of a layer's output.
  Numbers shape(const std::string& value) const {
    return std::get<OnnxActivation>(*op_.all().values.find(value)).shape;
  }
  // The node's output is this value.
  void finish(const std::string& value) { op_.set(OnnxKnown(*op_.all().values.find(value))); }

 private:
  std::string new_name() { return op_.node().outputs[0] + "\n" + std::to_string(++count_); }

  OnnxOperator& op_;
  int count_ = 0;
};

// Queries [batch, heads, length, size], and keys and values likewise, perhaps of fewer heads; with
// grouped heads, [batch, key heads, queries per key, length, size] and a 1 in place of the third.
struct OnnxHeads {
  std::string q, k, v;
  std::int64_t heads = 0, key_heads = 0, queries = 0, keys = 0, size = 0;
  bool are_rows = false;  // in the file, [batch, length, heads * size]

  bool is_grouped() const { return heads != key_heads; }
};

// Input `index` with a dimension of heads after that of the samples.
std::string with_heads(OnnxOperator& op, OnnxParts& parts, std::size_t index, bool& are_rows) {
  std::string value = parts.add_value(plain_input(op, index));
  const Numbers shape = parts.shape(value);
  are_rows = shape.size() == 3;
  if (shape.size() == 4) return value;
  const std::int64_t heads = op.integer(index == 0 ? "q_num_heads" : "kv_num_heads", 0);
  if (shape.size() != 3 || heads < 1)
    refuse_attention("it reads " + onnx_shape_text(shape) +
                     ", expected [batch, heads, length, size], or [batch, length, heads * size] "
                     "with q_num_heads and kv_num_heads");
  return parts.transposed(parts.reshaped(value, {0, 0, heads, -1}), {0, 2, 1, 3});
}

OnnxHeads heads_of(OnnxOperator& op, OnnxParts& parts) {
  OnnxHeads all;
  all.v = with_heads(op, parts, 2, all.are_rows);
  all.k = with_heads(op, parts, 1, all.are_rows);
  all.q = with_heads(op, parts, 0, all.are_rows);
  const Numbers q = parts.shape(all.q), k = parts.shape(all.k), v = parts.shape(all.v);
  all.heads = q[1], all.key_heads = k[1];
  all.queries = q[2], all.keys = k[2], all.size = q[3];
  const bool are_known =
      std::ranges::none_of(Numbers{q[1], q[2], q[3], k[1], k[2]}, is_onnx_symbol);
  if (!are_known || k[1] < 1 || q[1] % k[1] != 0 || v[1] != k[1])
    refuse_attention("queries " + onnx_shape_text(q) + ", keys " + onnx_shape_text(k) +
                     " and values " + onnx_shape_text(v) +
                     ", expected known extents, as many heads of values as of keys, and a "
                     "multiple of them of queries");
  if (!all.is_grouped()) return all;
  all.q = parts.reshaped(all.q, {0, k[1], q[1] / k[1], q[2], q[3]});
  all.k = parts.add("Unsqueeze", {all.k, parts.numbers({2})});
  all.v = parts.add("Unsqueeze", {all.v, parts.numbers({2})});
  return all;
}

OnnxTensor causal_mask(OnnxOperator& op, const OnnxHeads& heads) {
  OnnxTensor mask = zeros(op, {heads.queries, heads.keys}, true);
  for (std::int64_t i = 0; i < heads.queries; ++i)
    for (std::int64_t j = i + 1; j < heads.keys; ++j)
      mask.reals[static_cast<std::size_t>(i * heads.keys + j)] = -kInfinity;
  return mask;
}

// A mask of booleans is true where a query reads a key.
OnnxTensor as_added_mask(OnnxOperator& op, OnnxTensor mask) {
  if (mask.is_real) return mask;
  OnnxTensor added = zeros(op, mask.shape, true);
  for (std::size_t i = 0; i < mask.integers.size(); ++i)
    if (mask.integers[i] == 0) added.reals[i] = -kInfinity;
  return added;
}

// Each query has to read a key: the softmax of nothing is NaN in ONNX.
void expect_keys(const OnnxTensor& mask) {
  const auto keys = static_cast<std::size_t>(mask.shape.empty() ? 1 : mask.shape.back());
  const auto is_masked = [](double number) { return number == -kInfinity; };
  for (auto row = mask.reals.begin(); row != mask.reals.end();
       row += static_cast<std::ptrdiff_t>(keys))
    if (std::all_of(row, row + static_cast<std::ptrdiff_t>(keys), is_masked))
      throw OnnxUnsupported("its mask leaves a query without any key");
}

// The mask as the output of a node that scores are added to.
std::string given_mask(OnnxOperator& op, OnnxParts& parts, const OnnxHeads& heads) {
  const auto expect_no_heads = [&](const Numbers& shape) {
    const bool has_others = shape.size() > 2 && std::any_of(shape.begin(), shape.end() - 2,
                                                            [](std::int64_t n) { return n != 1; });
    if (heads.is_grouped() && has_others)
      refuse_attention("a mask " + onnx_shape_text(shape) +
                       " for grouped heads, expected one for all of them");
  };
  if (op.is_activation(3) || !op.is_computable(3)) {
    OnnxActivation mask = plain_input(op, 3);
    if (is_boolean(op.all(), op.node().inputs[3]))
      refuse_attention("a mask of comparisons, expected a constant or numbers that are added");
    expect_no_heads(mask.shape);
    while (heads.is_grouped() && mask.plain.dims.size() > 2)
      mask.plain.dims.erase(mask.plain.dims.begin());
    if (heads.is_grouped()) mask.shape = shape_of(mask.plain);
    return parts.add_value(std::move(mask));
  }
  OnnxTensor mask = as_added_mask(op, op.tensor(3));
  expect_no_heads(mask.shape);
  while (heads.is_grouped() && mask.shape.size() > 2) mask.shape.erase(mask.shape.begin());
  expect_keys(mask);
  return parts.add_value(std::move(mask));
}

// softmax(scale q k^T + masks) v. What has no translation is a state of earlier calls, and scores
// that are limited.
void translate_attention(OnnxOperator& op) {
  for (std::size_t i = 4; i < op.node().inputs.size(); ++i)
    if (op.has_input(i)) refuse_attention("input " + std::to_string(i) + ", expected at most 4");
  if (op.real("softcap", 0) != 0) refuse_attention("softcap, expected 0");
  OnnxParts parts(op);
  OnnxHeads heads = heads_of(op, parts);
  const double scale = op.real("scale", 1 / std::sqrt(static_cast<double>(heads.size)));
  const std::string turned =
      parts.transposed(heads.k, heads.is_grouped() ? Numbers{0, 1, 2, 4, 3} : Numbers{0, 1, 3, 2});
  std::string scores =
      parts.add("MatMul", {parts.add("Mul", {heads.q, parts.number(scale)}), turned});
  if (op.integer("is_causal", 0) != 0)
    scores = parts.add("Add", {scores, parts.add_value(causal_mask(op, heads))});
  if (op.has_input(3)) scores = parts.add("Add", {scores, given_mask(op, parts, heads)});
  const std::string weights = parts.add("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
  std::string value = parts.add("MatMul", {weights, heads.v});
  if (heads.is_grouped()) value = parts.reshaped(value, {0, heads.heads, heads.queries, -1});
  if (heads.are_rows) value = parts.reshaped(parts.transposed(value, {0, 2, 1, 3}), {0, 0, -1});
  parts.finish(value);
}

// x / sqrt(mean(x^2) + eps), without a weight or with one of other dimensions.
void set_scaled_rms_norm(OnnxOperator& op, std::int64_t first, std::size_t rank) {
  OnnxParts parts(op);
  // A parameter is read once, as a value: its products are no weights of the norm.
  const std::string x =
      op.is_activation(0) ? op.node().inputs[0] : parts.add_value(plain_input(op, 0));
  Numbers axes;
  for (std::int64_t axis = first; axis < static_cast<std::int64_t>(rank); ++axis)
    axes.push_back(axis);
  const std::string mean =
      parts.add("ReduceMean", {parts.add("Mul", {x, x}), parts.numbers(std::move(axes))}, {});
  const std::string root =
      parts.add("Sqrt", {parts.add("Add", {mean, parts.number(op.real("epsilon", 1e-5))})});
  std::string value = parts.add("Div", {x, root});
  if (!is_all(op, 1, 1)) value = parts.add("Mul", {value, op.node().inputs[1]});
  parts.finish(value);
}

// The weight that the layer `rms_norm` can have; nothing for others.
std::optional<OnnxConstant> rms_weight(OnnxOperator& op, const Numbers& normed) {
  if (!std::holds_alternative<OnnxConstant>(op.input(1))) return std::nullopt;
  const OnnxConstant weight = op.constant(1);
  if (!is_trained_weight(weight) || is_apart(op.all(), weight) || shape_of(weight) != normed)
    return std::nullopt;
  return weight;
}

// Over the last dimensions, which become the last one of the layer.
void translate_rms_norm(OnnxOperator& op) {
  OnnxActivation value = plain_input(op, 0);
  const std::size_t rank = value.plain.dims.size(),
                    first = dimension_of(op.integer("axis", -1), rank);
  std::vector<int> axes;
  Numbers normed;
  for (std::size_t i = first; i < rank; ++i) {
    const std::vector<int>& dim = value.plain.dims[i];
    axes.insert(axes.end(), dim.begin(), dim.end());
    normed.push_back(extent_of(value.plain, dim));
  }
  if (std::ranges::any_of(normed, is_onnx_symbol))
    throw OnnxUnsupported("over " + onnx_shape_text(normed) + ", expected known extents");
  const auto weight = rms_weight(op, normed);
  if (!weight) return set_scaled_rms_norm(op, static_cast<std::int64_t>(first), rank);
  const std::int64_t width = extent_of(value.plain, axes);
  value = with_last(op, std::move(value), axes);
  value.layer =
      add_norm(op, {.kind = "rms_norm",
                    .name = op.all().layers.free_name(initializer_name(*weight), op.node()),
                    .tied = {},
                    .inputs = {value.layer},
                    .options = {{"eps", base::shortest_text(op.real("epsilon", 1e-5))}},
                    .arrays = {{"weight", *weight, {width}}}});
  set_plain(op, std::move(value));
}

}  // namespace

std::vector<OnnxOperatorRow> onnx_attention_operators() {
  return {{"Attention", translate_attention}, {"RMSNormalization", translate_rms_norm}};
}

}  // namespace models
