// Masks of attention: constants that let positions read earlier ones alone, and booleans.
#include "models/onnx_tokens/onnx_masks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "models/onnx_translation/onnx_combined.h"
#include "models/onnx_translation/onnx_plain.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// The softmax of a score of this size beside others is 0 in float64 as well.
constexpr double kMasked = -1e4;

// Whether the node's outputs are booleans by its type alone; nothing: they have the type of an
// input.
std::optional<bool> gives_booleans(const io::ReadNode& node) {
  constexpr std::int64_t kBoolean = 9;  // ONNX's number of the type
  constexpr std::string_view kTruths[] = {
      "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or",
      "Xor",   "Not",     "IsNaN",          "IsInf"};
  const std::string& type = node.type;
  if (std::ranges::find(kTruths, type) != std::end(kTruths)) return true;
  for (const io::ReadAttribute& attribute : node.attributes) {
    const auto* number = std::get_if<std::int64_t>(&attribute.value);
    if (type == "Cast" && attribute.name == "to") return number != nullptr && *number == kBoolean;
    const auto* tensor = std::get_if<io::StoredTensor>(&attribute.value);
    if (attribute.name == "value" && tensor != nullptr) return tensor->type == io::DType::kU8;
  }
  if (type == "Shape" || type == "Size" || type == "NonZero") return false;
  return std::nullopt;
}

// Returns n for a shape [1, ..., n, n]; 0 for others.
std::int64_t positions_of(const Numbers& shape) {
  const std::size_t rank = shape.size();
  if (rank < 2 || shape[rank - 1] < 2 || shape[rank - 1] != shape[rank - 2]) return 0;
  const bool has_others =
      std::any_of(shape.begin(), shape.end() - 2, [](std::int64_t extent) { return extent != 1; });
  return has_others ? 0 : shape[rank - 1];
}

// Returns whether is_later(k) holds for the elements k of a matrix above its diagonal, and
// is_earlier(k) for the others.
template <class Earlier, class Later>
bool is_triangle(std::int64_t positions, Earlier is_earlier, Later is_later) {
  for (std::int64_t i = 0; i < positions; ++i)
    for (std::int64_t j = 0; j < positions; ++j) {
      const auto k = static_cast<std::size_t>(i * positions + j);
      if (!(j > i ? is_later(k) : is_earlier(k))) return false;
    }
  return positions > 0;
}

bool is_added_mask(const std::vector<double>& numbers, std::int64_t positions) {
  return is_triangle(
      positions, [&](std::size_t k) { return numbers[k] == 0; },
      [&](std::size_t k) { return numbers[k] <= kMasked; });
}

// The input as scores of attention with as many positions, if it is a product of two values.
std::optional<OnnxActivation> scores_input(OnnxOperator& op, std::size_t index,
                                           std::int64_t positions) {
  const auto* found = std::get_if<OnnxActivation>(&op.input(index));
  if (found == nullptr || !op.all().products.contains(found->layer)) return std::nullopt;
  const OnnxPlain plain = as_plain(*found).plain;
  const std::size_t rank = plain.dims.size();
  if (!has_same_places(plain, op.all().products.at(found->layer).output)) return std::nullopt;
  if (extent_of(plain, plain.dims[rank - 1]) != positions ||
      extent_of(plain, plain.dims[rank - 2]) != positions)
    return std::nullopt;
  return materialized(op, *found);
}

bool is_product(OnnxOperator& op, std::size_t index) {
  const auto* found = std::get_if<OnnxActivation>(&op.input(index));
  return found != nullptr && op.all().products.contains(found->layer);
}

Numbers shape_of_input(OnnxOperator& op, std::size_t index) {
  if (const auto* value = std::get_if<OnnxActivation>(&op.input(index))) return value->shape;
  if (const auto* tensor = std::get_if<OnnxTensor>(&op.input(index))) return tensor->shape;
  return shape_of(op.constant(index));
}

// Whether a value of this shape is one of the other shape once it is expanded, as NumPy does.
bool expands_to(const Numbers& from, const Numbers& to) {
  if (from.size() > to.size()) return false;
  const std::size_t first = to.size() - from.size();
  for (std::size_t i = 0; i < from.size(); ++i)
    if (from[i] != 1 && (from[i] != to[first + i] || from[i] == kOnnxUnknown)) return false;
  return true;
}

// The numbers of a tensor of floats.
std::vector<double> reals_of(const io::NamedArray& array, bool is_wide) {
  std::vector<double> numbers;
  if (is_wide) {
    numbers.resize(array.data.size() / sizeof(double));
    std::memcpy(numbers.data(), array.data.data(), array.data.size());
    return numbers;
  }
  std::vector<float> narrow(array.data.size() / sizeof(float));
  std::memcpy(narrow.data(), array.data.data(), array.data.size());
  numbers.assign(narrow.begin(), narrow.end());
  return numbers;
}

}  // namespace

std::unordered_set<const io::StoredTensor*> constant_masks(const io::OnnxReader& file) {
  std::unordered_set<const io::StoredTensor*> masks;
  const io::OnnxGraph& graph = file.graph();
  if (graph.inputs.size() != 1 || !tokens_of(file.name(), graph.inputs[0])) return masks;
  // Elements to read: tensors may share bytes of a file. Other shapes than that of a causal mask do
  // not use up its limit.
  std::size_t left_square = kMaxOnnxAllComputed, left_others = kMaxOnnxAllComputed;
  for (const io::StoredTensor& tensor : graph.constants) {
    const std::int64_t positions = positions_of(tensor.shape);
    const bool is_wide = tensor.type == io::DType::kF64;
    std::size_t& left = positions > 0 ? left_square : left_others;
    if (tensor.count() > std::min(kMaxOnnxComputed, left) || tensor.name.ends_with(".weight") ||
        (!is_wide && tensor.type != io::DType::kF32))
      continue;
    left -= tensor.count();
    const std::vector<double> numbers = reals_of(file.load(tensor), is_wide);
    const bool is_choice = is_triangle(
        positions, [&](std::size_t k) { return numbers[k] == 1; },
        [&](std::size_t k) { return numbers[k] == 0; });
    const bool is_infinite =
        std::ranges::any_of(numbers, [](double number) { return std::isinf(number); });
    if (is_choice || is_infinite || is_added_mask(numbers, positions)) masks.insert(&tensor);
  }
  return masks;
}

bool add_mask(OnnxOperator& op, std::size_t index) {
  if (!is_product(op, 1 - index) || op.is_activation(index) || !op.is_computable(index))
    return false;
  OnnxTensor mask = op.tensor(index);
  const Numbers shape = shape_of_input(op, 1 - index);
  if (!mask.is_real || mask.shape.empty() || !expands_to(mask.shape, shape)) return false;
  if (std::ranges::all_of(mask.reals, [](double x) { return x == 0; })) {
    op.set(op.input(1 - index));
    return true;
  }
  const std::int64_t positions = positions_of(mask.shape);
  if (!is_added_mask(mask.reals, positions)) return false;
  const auto scores = scores_input(op, 1 - index, positions);
  if (!scores) return false;
  OnnxActivation sum = combined(op, "add", *scores, tensor_value(op, std::move(mask)));
  op.all().causal[sum.layer] = scores->layer;
  set_plain(op, std::move(sum));
  return true;
}

int masked_scores(OnnxOperator& op, const OnnxTensor& condition) {
  for (const std::size_t index : {1U, 2U}) {
    const std::size_t other = 3 - index;
    if (!is_product(op, index) || op.is_activation(other) || !op.is_computable(other)) continue;
    const OnnxTensor number = op.tensor(other);
    if (number.reals.size() != 1 || number.reals[0] > kMasked) continue;
    const std::int64_t positions = positions_of(condition.shape);
    const auto is_masked = [&](std::size_t k) {
      return (condition.integers[k] != 0) == (other == 1);
    };
    if (!is_triangle(positions, std::not_fn(is_masked), is_masked)) continue;
    const auto scores = scores_input(op, index, positions);
    if (!scores) continue;
    op.all().values.set(op.node().inputs[index], as_special(*scores));
    return scores->layer;
  }
  return -1;
}

bool set_only_choice(OnnxOperator& op, const OnnxTensor& condition) {
  const auto is_chosen = [](std::int64_t value) { return value != 0; };
  const bool is_first = std::ranges::all_of(condition.integers, is_chosen);
  if (!is_first && std::ranges::any_of(condition.integers, is_chosen)) return false;
  const std::size_t index = is_first ? 1 : 2;
  if (!op.is_activation(index)) return false;
  const Numbers shape = shape_of_input(op, index);
  if (!expands_to(condition.shape, shape) || !expands_to(shape_of_input(op, 3 - index), shape))
    return false;
  op.set(op.input(index));
  return true;
}

bool set_never_nan(OnnxOperator& op) {
  const auto* found = std::get_if<OnnxActivation>(&op.input(0));
  if (found == nullptr || found->layer < 0) return false;
  const OnnxListedLayer& layer = op.all().layers.at(found->layer);
  if (layer.kind != "softmax") return false;
  const int scores = layer.inputs.at(0);
  if (!op.all().products.contains(scores) && !op.all().causal.contains(scores)) return false;
  op.set(OnnxTensor{.shape = {}, .integers = {0}, .reals = {}});
  return true;
}

// From the last node to the first: each is after those that it reads.
bool is_boolean(const OnnxTranslation& all, std::string value) {
  const std::vector<io::ReadNode>& nodes = all.graph.nodes;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (std::ranges::find(node->outputs, value) == node->outputs.end()) continue;
    if (const std::optional<bool> is_known = gives_booleans(*node)) return *is_known;
    const std::size_t input = node->type == "Where" || node->type == "CastLike" ? 1 : 0;
    if (input >= node->inputs.size()) return false;
    value = node->inputs[input];
  }
  const OnnxKnown* known = all.values.find(value);
  const auto* constant = known == nullptr ? nullptr : std::get_if<OnnxConstant>(known);
  return constant != nullptr && constant->tensor->type == io::DType::kU8;
}

}  // namespace models
