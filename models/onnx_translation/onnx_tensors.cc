// Limits, strides and NumPy's rule of shapes.
#include "models/onnx_translation/onnx_tensors.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "models/onnx_translation/onnx_plain.h"

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

OnnxTensor as_reals(OnnxTensor tensor) {
  if (tensor.is_real) return tensor;
  for (const std::int64_t value : tensor.integers) {
    if (is_onnx_symbol(value)) throw OnnxUnsupported("it computes with an extent that is unknown");
    tensor.reals.push_back(static_cast<double>(value));
  }
  tensor.integers.clear();
  tensor.is_real = true;
  return tensor;
}

OnnxTensor converted(OnnxOperator& op, OnnxTensor all, std::int64_t to) {
  if (to == 1 || to == 11) return as_reals(std::move(all));
  if (to != 6 && to != 7 && to != 9)
    throw OnnxUnsupported("a conversion to ONNX's type " + std::to_string(to) +
                          ", expected 1 (float), 6, 7 (integers), 9 (bool) or 11 (double)");
  if (!all.is_real && to != 9) return all;
  const auto truth = [&](auto value) { return static_cast<std::int64_t>(value != 0); };
  OnnxTensor result = zeros(op, all.shape, false);
  for (std::size_t i = 0; i < result.integers.size(); ++i) {
    if (!all.is_real) {
      const std::int64_t value = all.integers[i];
      result.integers[i] = value == kOnnxUnknown ? value : truth(value);
      continue;
    }
    const double value = all.reals[i];
    if (!(std::abs(value) < 9e18)) throw OnnxUnsupported("a float that is no integer");
    result.integers[i] = to == 9 ? truth(value) : static_cast<std::int64_t>(value);
  }
  return result;
}

std::int64_t checked_entry(std::int64_t index, std::int64_t extent) {
  if (index < -extent || index >= extent)
    throw OnnxUnsupported("entry " + std::to_string(index) + " of " + std::to_string(extent));
  return index < 0 ? index + extent : index;
}

}  // namespace models
