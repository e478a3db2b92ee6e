// Entries of constants that are chosen by indices or by their place, and types and sequences, which
// exports without optimization contain.
#include "models/onnx_tokens/onnx_constant_entries.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "models/onnx_translation/onnx_plain.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// The triangle above or below the diagonal; other elements become 0.
OnnxTensor fold_triangle(OnnxOperator& op) {
  OnnxTensor all = op.tensor(0);
  const Numbers offset = op.has_input(1) ? op.numbers(1) : Numbers{0};
  const bool is_upper = op.integer("upper", 1) != 0;
  const std::size_t rank = all.shape.size();
  if (rank < 2 || offset.size() != 1 || std::abs(offset[0]) > kMaxOnnxExtent)
    throw OnnxUnsupported("of " + onnx_shape_text(all.shape) + ", expected a matrix");
  const std::int64_t rows = all.shape[rank - 2], columns = all.shape[rank - 1];
  for (std::size_t at = 0; at < count_of(all); ++at) {
    const auto place = static_cast<std::int64_t>(at);
    const std::int64_t i = place / columns % rows + offset[0], j = place % columns;
    if (is_upper ? j >= i : j <= i) continue;
    if (all.is_real)
      all.reals[at] = 0;
    else
      all.integers[at] = 0;
  }
  op.all().computed += count_of(all);
  return all;
}

// An index for each element of the result, along one axis.
OnnxTensor fold_gather_elements(OnnxOperator& op) {
  const OnnxTensor all = op.tensor(0), indices = op.tensor(1);
  const std::size_t rank = all.shape.size(), axis = dimension_of(op.integer("axis", 0), rank);
  bool fits = !indices.is_real && indices.shape.size() == rank;
  for (std::size_t d = 0; fits && d < rank; ++d)
    fits = d == axis || indices.shape[d] <= all.shape[d];
  if (!fits)
    throw OnnxUnsupported("indices of " + onnx_shape_text(indices.shape) + " in " +
                          onnx_shape_text(all.shape));
  OnnxTensor result = zeros(op, indices.shape, all.is_real);
  Numbers strides = strides_of(all.shape);
  const std::int64_t step = strides[axis], extent = all.shape[axis];
  strides[axis] = 0;
  for_each_element(indices.shape, strides, 0, [&](std::size_t k, std::size_t offset) {
    const std::int64_t entry = checked_entry(indices.integers[k], extent);
    copy_element(all, offset + static_cast<std::size_t>(entry * step), result, k);
  });
  return result;
}

// Each row of indices names an element, or a part of as many dimensions less.
OnnxTensor fold_gather_nd(OnnxOperator& op) {
  const OnnxTensor all = op.tensor(0), indices = op.tensor(1);
  if (indices.is_real || indices.shape.empty() || op.integer("batch_dims", 0) != 0)
    throw OnnxUnsupported("expected integers as indices, and batch_dims 0");
  const std::int64_t depth = indices.shape.back();
  if (depth < 1 || depth > std::ssize(all.shape)) throw OnnxUnsupported("indices of another rank");
  Numbers shape(indices.shape.begin(), indices.shape.end() - 1);
  shape.insert(shape.end(), all.shape.begin() + depth, all.shape.end());
  OnnxTensor result = zeros(op, shape, all.is_real);
  const Numbers strides = strides_of(all.shape);
  const auto inner = static_cast<std::size_t>(strides[static_cast<std::size_t>(depth - 1)]);
  for (std::size_t k = 0; k < count_of(result); ++k) {
    std::int64_t offset = static_cast<std::int64_t>(k % inner);
    for (std::size_t d = 0; d < static_cast<std::size_t>(depth); ++d)
      offset += checked_entry(indices.integers[k / inner * static_cast<std::size_t>(depth) + d],
                              all.shape[d]) *
                strides[d];
    copy_element(all, static_cast<std::size_t>(offset), result, k);
  }
  return result;
}

// Returns whether the second input has floats; layers' outputs have.
bool is_like_floats(OnnxOperator& op) {
  if (std::holds_alternative<OnnxTokens>(op.input(1))) return false;
  return op.is_activation(1) || !op.is_computable(1) || op.tensor(1).is_real;
}

// A Cast to the type of the second input.
void translate_cast_like(OnnxOperator& op) {
  const bool to_floats = is_like_floats(op);
  const bool keeps =
      to_floats ? op.is_activation(0) : std::holds_alternative<OnnxTokens>(op.input(0));
  if (keeps) return op.set(op.input(0));
  if (op.is_activation(0) || !op.is_computable(0)) {
    if (!to_floats) throw OnnxUnsupported("to integers, expected floats");
    return op.set(op.constant(0));  // a parameter
  }
  op.set(converted(op, op.tensor(0), to_floats ? 1 : 7));
}

}  // namespace

std::map<std::string, OnnxFold> onnx_constant_entries() {
  return {{"Trilu", fold_triangle},
          {"GatherElements", fold_gather_elements},
          {"GatherND", fold_gather_nd}};
}

std::vector<OnnxOperatorRow> onnx_token_operators() { return {{"CastLike", translate_cast_like}}; }

}  // namespace models
