// Computes constants: the arithmetic on shapes, indices and masks that exporters write into a
// graph.
#include "models/onnx_import/onnx_folding.h"

#include <algorithm>
#include <numeric>

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// Strides of a tensor that is read as one of this shape.
Numbers broadcast_strides(const Numbers& from, const Numbers& shape) {
  const Numbers own = strides_of(from);
  Numbers strides(shape.size());
  const std::size_t first = shape.size() - from.size();
  for (std::size_t i = 0; i < from.size(); ++i) strides[first + i] = from[i] == 1 ? 0 : own[i];
  return strides;
}

// Integers that count samples: 0, 1, ... up to their number. Returns false for other ranges.
bool count_samples(OnnxOperator& op) {
  for (const std::size_t i : {0U, 1U, 2U})
    if (!op.is_computable(i) || op.tensor(i).is_real) return false;
  if (op.numbers(0) != Numbers{0} || op.numbers(1) != Numbers{kOnnxBatch} ||
      op.numbers(2) != Numbers{1})
    return false;
  op.set(OnnxSampleIndices{1, {.shape = {1}, .integers = {0}, .reals = {}}});
  return true;
}

void multiply_indices(OnnxSampleIndices& all, std::int64_t factor) {
  for (std::int64_t& offset : all.offsets.integers) offset = computed_extent("Mul", offset, factor);
  all.step = computed_extent("Mul", all.step, factor);
}

void add_to_indices(OnnxOperator& op, OnnxSampleIndices& all, const OnnxTensor& other) {
  const Numbers shape = broadcast_shape(all.offsets.shape, other.shape);
  all.offsets = expanded(op, all.offsets, shape);
  const OnnxTensor added = expanded(op, other, shape);
  for (std::size_t i = 0; i < added.integers.size(); ++i)
    all.offsets.integers[i] = computed_extent("Add", all.offsets.integers[i], added.integers[i]);
}

// Integers that count samples, with a number for each: their product, sum or other shape. Returns
// false for other nodes.
bool fold_sample_indices(OnnxOperator& op) {
  const std::string& type = op.node().type;
  if (type == "Range") return count_samples(op);
  const auto* found = std::get_if<OnnxSampleIndices>(&op.input(0));
  if (found == nullptr || !op.has_input(1) || !op.is_computable(1)) return false;
  OnnxSampleIndices all = *found;
  const OnnxTensor other = op.tensor(1);
  if (other.is_real) return false;
  const std::size_t rank = all.offsets.shape.size();
  if (type == "Unsqueeze" &&
      std::ranges::count_if(other.integers, [](auto i) { return i < 1; }) == 0)
    all.offsets.shape.resize(rank + other.integers.size(), 1);  // after the samples
  else if (type == "Mul" && other.integers.size() == 1)
    multiply_indices(all, other.integers[0]);
  else if (type == "Add" && other.shape.size() == rank && other.shape[0] == 1)
    add_to_indices(op, all, other);
  else
    return false;
  op.set(std::move(all));
  return true;
}

bool is_matrix(const OnnxConstant& constant) {
  const io::StoredTensor& tensor = *constant.tensor;
  return tensor.shape.size() == 2 && tensor.type && base::is_floating(*tensor.type);
}

}  // namespace

void count_computed(OnnxOperator& op, std::size_t elements) {
  op.all().computed += elements;
  if (op.all().computed > kMaxOnnxAllComputed)
    throw OnnxUnsupported("constants of more than " + std::to_string(kMaxOnnxAllComputed) +
                          " elements are computed");
}

OnnxTensor zeros(OnnxOperator& op, const Numbers& shape, bool is_real) {
  std::size_t count = 1;
  if (shape.size() > io::kMaxOnnxDimensions) throw OnnxUnsupported("more than 8 dimensions");
  for (const std::int64_t extent : shape) {
    if (extent < 0) throw OnnxUnsupported("a constant of shape " + onnx_shape_text(shape));
    if (__builtin_mul_overflow(count, static_cast<std::size_t>(extent), &count) ||
        count > kMaxOnnxComputed)
      throw OnnxUnsupported("a constant of shape " + onnx_shape_text(shape) +
                            ", expected at most " + std::to_string(kMaxOnnxComputed) + " elements");
  }
  count_computed(op, count);
  OnnxTensor all{.shape = shape, .integers = {}, .reals = {}, .is_real = is_real};
  if (is_real)
    all.reals.resize(count);
  else
    all.integers.resize(count);
  return all;
}

std::size_t count_of(const OnnxTensor& tensor) {
  return tensor.is_real ? tensor.reals.size() : tensor.integers.size();
}

void copy_element(const OnnxTensor& from, std::size_t i, OnnxTensor& to, std::size_t k) {
  if (to.is_real)
    to.reals.at(k) = from.reals.at(i);
  else
    to.integers.at(k) = from.integers.at(i);
}

Numbers strides_of(const Numbers& shape) {
  Numbers strides(shape.size(), 1);
  // Beside an extent of 0, others may be of any size: nothing uses their strides.
  for (std::size_t i = shape.size(); i-- > 1;)
    if (__builtin_mul_overflow(strides[i], shape[i], &strides[i - 1])) strides[i - 1] = 0;
  return strides;
}

void for_each_element(const Numbers& shape, const Numbers& strides, std::int64_t first,
                      const std::function<void(std::size_t, std::size_t)>& visit) {
  if (std::ranges::find(shape, 0) != shape.end()) return;
  const std::int64_t count =
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  Numbers index(shape.size());
  std::int64_t offset = first;
  for (std::int64_t k = 0; k < count; ++k) {
    visit(static_cast<std::size_t>(k), static_cast<std::size_t>(offset));
    for (std::size_t d = shape.size(); d-- > 0;) {
      offset += strides[d];
      if (++index[d] < shape[d]) break;
      offset -= strides[d] * shape[d];
      index[d] = 0;
    }
  }
}

OnnxTensor strided(OnnxOperator& op, const OnnxTensor& from, const Numbers& shape,
                   const Numbers& strides, std::int64_t first) {
  OnnxTensor to = zeros(op, shape, from.is_real);
  for_each_element(shape, strides, first,
                   [&](std::size_t k, std::size_t i) { copy_element(from, i, to, k); });
  return to;
}

Numbers broadcast_shape(const Numbers& a, const Numbers& b) {
  const Numbers& longer = a.size() >= b.size() ? a : b;
  const Numbers& shorter = a.size() >= b.size() ? b : a;
  Numbers shape = longer;
  const std::size_t first = longer.size() - shorter.size();
  for (std::size_t i = 0; i < shorter.size(); ++i) {
    std::int64_t& extent = shape[first + i];
    if (extent != shorter[i] && extent != 1 && shorter[i] != 1)
      throw OnnxUnsupported("constants of " + onnx_shape_text(a) + " and " + onnx_shape_text(b));
    if (extent == 1) extent = shorter[i];
  }
  return shape;
}

OnnxTensor expanded(OnnxOperator& op, const OnnxTensor& from, const Numbers& shape) {
  if (broadcast_shape(from.shape, shape) != shape)
    throw OnnxUnsupported(onnx_shape_text(from.shape) + " to " + onnx_shape_text(shape));
  return strided(op, from, shape, broadcast_strides(from.shape, shape));
}

bool fold_node(OnnxOperator& op) {
  const std::string& type = op.node().type;
  static const std::map<std::string, OnnxFold> table = [] {
    std::map<std::string, OnnxFold> all = onnx_arithmetic();
    all.merge(onnx_constant_movements());
    all.merge(onnx_constant_entries());
    return all;
  }();
  const auto found = table.find(type);
  if (found == table.end() || op.node().inputs.empty()) return false;
  if (op.has_input(0) && fold_sample_indices(op)) return true;
  for (std::size_t i = 0; i < op.node().inputs.size(); ++i) {
    if (!op.has_input(i)) continue;
    // Values of a mask may be stored as a parameter would be; a matrix is transposed by its layer.
    const auto* constant = std::get_if<OnnxConstant>(&op.input(i));
    if (type == "ScatterND" && constant != nullptr) continue;
    if (!op.is_computable(i) ||
        (type == "Transpose" && constant != nullptr && is_matrix(*constant)))
      return false;
  }
  const std::size_t before = op.all().computed;
  OnnxTensor result = found->second(op);
  const std::size_t counted = op.all().computed - before, elements = count_of(result);
  if (counted < elements) count_computed(op, elements - counted);  // a copy of another one
  op.set(std::move(result));
  return true;
}

}  // namespace models
