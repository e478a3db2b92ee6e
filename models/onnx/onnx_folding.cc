// Computes constants: the arithmetic on shapes, indices and masks that exporters write into a
// graph.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <string>

#include "models/onnx/onnx_operator.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// A tensor of zeros, which is counted before it is allocated.
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
  op.all().computed += count;
  if (op.all().computed > kMaxOnnxAllComputed)
    throw OnnxUnsupported("constants of more than " + std::to_string(kMaxOnnxAllComputed) +
                          " elements are computed");
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
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

// Calls `visit(k, offset)` for each element k of `shape`, with the offset that these strides give.
void for_each_element(const Numbers& shape, const Numbers& strides, std::int64_t first,
                      const std::function<void(std::size_t, std::size_t)>& visit) {
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
                   const Numbers& strides, std::int64_t first = 0) {
  OnnxTensor to = zeros(op, shape, from.is_real);
  for_each_element(shape, strides, first,
                   [&](std::size_t k, std::size_t i) { copy_element(from, i, to, k); });
  return to;
}

// NumPy's rule.
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

// Strides of a tensor that is read as one of this shape.
Numbers broadcast_strides(const Numbers& from, const Numbers& shape) {
  const Numbers own = strides_of(from);
  Numbers strides(shape.size());
  const std::size_t first = shape.size() - from.size();
  for (std::size_t i = 0; i < from.size(); ++i) strides[first + i] = from[i] == 1 ? 0 : own[i];
  return strides;
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

// A sum, difference, product or quotient of which one operand is a multiple of the number of
// samples.
std::int64_t computed_batches(const std::string& type, std::int64_t a, std::int64_t b) {
  const std::int64_t m = batches_of(a), n = batches_of(b);
  const auto times = [](std::int64_t count) {
    return count > 0 && count <= kMaxOnnxExtent ? kOnnxUnknown + count : kOnnxUnknown;
  };
  if (type == "Mul" && m > 0 && !is_onnx_symbol(b) && b <= kMaxOnnxExtent) return times(m * b);
  if (type == "Mul" && n > 0 && !is_onnx_symbol(a) && a <= kMaxOnnxExtent) return times(n * a);
  if (type == "Div" && m > 0 && n > 0 && m % n == 0) return m / n;
  if (type == "Div" && m > 0 && b > 0 && m % b == 0) return times(m / b);
  if (type == "Mod" && m > 0 && b > 0 && m % b == 0) return 0;
  if (type == "Sub" && m > 0 && m == n) return 0;
  if ((type == "Add" || type == "Sub") && m > 0 && b == 0) return a;
  if (type == "Add" && n > 0 && a == 0) return b;
  return kOnnxUnknown;
}

// Returns kOnnxUnknown for what cannot be computed.
std::int64_t computed(const std::string& type, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (type == "Equal") return a == b;
  if (is_onnx_symbol(a) || is_onnx_symbol(b)) return computed_batches(type, a, b);
  if (type == "Less") return a < b;
  if (type == "Greater") return a > b;
  if (type == "And") return a != 0 && b != 0;
  if (type == "Or") return a != 0 || b != 0;
  if (type == "Div") return b == 0 || b == -1 ? kOnnxUnknown : a / b;
  if (type == "Mod") return b <= 0 ? kOnnxUnknown : ((a % b) + b) % b;
  const bool overflows = type == "Add"   ? __builtin_add_overflow(a, b, &result)
                         : type == "Sub" ? __builtin_sub_overflow(a, b, &result)
                                         : __builtin_mul_overflow(a, b, &result);
  return overflows ? kOnnxUnknown : result;
}

double computed(const std::string& type, double a, double b) {
  if (type == "Add") return a + b;
  if (type == "Sub") return a - b;
  if (type == "Mul") return a * b;
  if (type == "Div") return a / b;
  if (type == "Pow") return std::pow(a, b);
  throw OnnxUnsupported("of floats");
}

OnnxTensor fold_binary(OnnxOperator& op) {
  OnnxTensor a = op.tensor(0), b = op.tensor(1);
  const std::string& type = op.node().type;
  const bool is_test = type == "Equal" || type == "Less" || type == "Greater";
  const bool has_reals = a.is_real || b.is_real || type == "Pow";
  if (has_reals) a = as_reals(std::move(a)), b = as_reals(std::move(b));
  const Numbers shape = broadcast_shape(a.shape, b.shape);
  a = expanded(op, a, shape), b = expanded(op, b, shape);
  OnnxTensor result = zeros(op, shape, has_reals && !is_test);
  for (std::size_t i = 0; i < count_of(result); ++i) {
    if (result.is_real)
      result.reals[i] = computed(type, a.reals[i], b.reals[i]);
    else if (!has_reals)
      result.integers[i] = computed(type, a.integers[i], b.integers[i]);
    else
      result.integers[i] = type == "Equal"  ? a.reals[i] == b.reals[i]
                           : type == "Less" ? a.reals[i] < b.reals[i]
                                            : a.reals[i] > b.reals[i];
  }
  return result;
}

OnnxTensor fold_unary(OnnxOperator& op) {
  const std::string& type = op.node().type;
  OnnxTensor all = op.tensor(0);
  if (type == "Not") {
    if (all.is_real) throw OnnxUnsupported("of floats");
    for (std::int64_t& value : all.integers) value = value == 0;
    return all;
  }
  if (type == "Neg" && !all.is_real) {
    for (std::int64_t& value : all.integers) value = computed("Sub", 0, value);
    return all;
  }
  all = as_reals(std::move(all));
  for (double& value : all.reals)
    value = type == "Sqrt"    ? std::sqrt(value)
            : type == "Floor" ? std::floor(value)
            : type == "Ceil"  ? std::ceil(value)
                              : -value;
  return all;
}

// ONNX's types: 1 float, 11 double, 6 and 7 integers, 9 booleans.
OnnxTensor fold_cast(OnnxOperator& op) {
  const std::int64_t to = op.integer("to", 0);
  OnnxTensor all = op.tensor(0);
  if (to == 1 || to == 11) return as_reals(std::move(all));
  if (to != 6 && to != 7 && to != 9)
    throw OnnxUnsupported("a conversion to ONNX's type " + std::to_string(to) +
                          ", expected 1 (float), 6, 7 (integers), 9 (bool) or 11 (double)");
  if (!all.is_real && to != 9) return all;
  const auto truth = [&](auto value) { return static_cast<std::int64_t>(value != 0); };
  OnnxTensor result = zeros(op, all.shape, false);
  for (std::size_t i = 0; i < result.integers.size(); ++i) {
    if (!all.is_real) {
      result.integers[i] = truth(all.integers[i]);
      continue;
    }
    const double value = all.reals[i];
    if (!(std::abs(value) < 9e18)) throw OnnxUnsupported("a float that is no integer");
    result.integers[i] = to == 9 ? truth(value) : static_cast<std::int64_t>(value);
  }
  return result;
}

OnnxTensor fold_where(OnnxOperator& op) {
  OnnxTensor choice = op.tensor(0), a = op.tensor(1), b = op.tensor(2);
  if (choice.is_real || a.is_real != b.is_real) throw OnnxUnsupported("of different types");
  const Numbers shape = broadcast_shape(broadcast_shape(choice.shape, a.shape), b.shape);
  choice = expanded(op, choice, shape), a = expanded(op, a, shape), b = expanded(op, b, shape);
  for (std::size_t i = 0; i < choice.integers.size(); ++i)
    if (choice.integers[i] != 0) copy_element(a, i, b, i);
  return b;
}

std::size_t axis_of(OnnxOperator& op, std::int64_t axis, std::size_t rank) {
  const auto count = static_cast<std::int64_t>(rank);
  if (axis < -count || axis >= count)
    throw OnnxUnsupported("axis " + std::to_string(axis) + " of " + std::to_string(rank) +
                          " dimensions in " + op.node().type);
  return static_cast<std::size_t>(axis < 0 ? axis + count : axis);
}

OnnxTensor fold_reshape(OnnxOperator& op) {
  OnnxTensor all = op.tensor(0);
  Numbers to = op.numbers(1);
  const auto count = static_cast<std::int64_t>(count_of(all));
  std::int64_t known = 1, free = -1;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i] == 0 && op.integer("allowzero", 0) == 0 && i < all.shape.size()) to[i] = all.shape[i];
    if (to[i] == -1)
      free = static_cast<std::int64_t>(i);
    else if (__builtin_mul_overflow(known, to[i], &known))
      known = -1;
  }
  if (free >= 0 && known > 0) to[static_cast<std::size_t>(free)] = count / known;
  if (known < 1 || (free < 0 ? known != count : count % known != 0) ||
      to.size() > io::kMaxOnnxDimensions)
    throw OnnxUnsupported("a constant of " + onnx_shape_text(all.shape) + " to " +
                          onnx_shape_text(op.numbers(1)));
  all.shape = to;
  return all;
}

OnnxTensor fold_transpose(OnnxOperator& op) {
  const OnnxTensor all = op.tensor(0);
  Numbers order(all.shape.size());
  std::iota(order.rbegin(), order.rend(), 0);
  order = op.integers("perm").value_or(order);
  Numbers sorted = order, shape, strides;
  std::ranges::sort(sorted);
  for (std::size_t i = 0; i < sorted.size(); ++i)
    if (sorted.size() != all.shape.size() || sorted[i] != static_cast<std::int64_t>(i))
      throw OnnxUnsupported("perm " + onnx_shape_text(order) + " of " + onnx_shape_text(all.shape));
  const Numbers own = strides_of(all.shape);
  for (const std::int64_t from : order) {
    shape.push_back(all.shape[static_cast<std::size_t>(from)]);
    strides.push_back(own[static_cast<std::size_t>(from)]);
  }
  return strided(op, all, shape, strides);
}

OnnxTensor fold_unsqueeze(OnnxOperator& op) {
  OnnxTensor all = op.tensor(0);
  Numbers axes = op.numbers(1);
  const std::size_t rank = all.shape.size() + axes.size();
  for (std::int64_t& axis : axes) axis = static_cast<std::int64_t>(axis_of(op, axis, rank));
  std::ranges::sort(axes);
  for (const std::int64_t axis : axes) {
    if (axis > std::ssize(all.shape)) throw OnnxUnsupported("axes that are named twice");
    all.shape.insert(all.shape.begin() + axis, 1);
  }
  if (all.shape.size() > io::kMaxOnnxDimensions) throw OnnxUnsupported("more than 8 dimensions");
  return all;
}

OnnxTensor fold_squeeze(OnnxOperator& op) {
  OnnxTensor all = op.tensor(0);
  Numbers axes = op.has_input(1) ? op.numbers(1) : Numbers{};
  for (std::int64_t& axis : axes)
    axis = static_cast<std::int64_t>(axis_of(op, axis, all.shape.size()));
  Numbers shape;
  for (std::size_t i = 0; i < all.shape.size(); ++i) {
    const bool is_named = std::ranges::count(axes, static_cast<std::int64_t>(i)) > 0;
    if (is_named && all.shape[i] != 1) throw OnnxUnsupported("a dimension that is not 1");
    if (!(op.has_input(1) ? is_named : all.shape[i] == 1)) shape.push_back(all.shape[i]);
  }
  all.shape = shape;
  return all;
}

OnnxTensor fold_slice(OnnxOperator& op) {
  const OnnxTensor all = op.tensor(0);
  const Numbers begins = op.numbers(1), ends = op.numbers(2);
  Numbers axes(begins.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (op.has_input(3)) axes = op.numbers(3);
  const Numbers steps = op.has_input(4) ? op.numbers(4) : Numbers(begins.size(), 1);
  if (ends.size() != begins.size() || axes.size() != begins.size() || steps.size() != begins.size())
    throw OnnxUnsupported("begins, ends, axes and steps of different lengths");
  Numbers shape = all.shape, strides = strides_of(all.shape);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const std::size_t axis = axis_of(op, axes[i], shape.size());
    const std::int64_t extent = shape[axis];
    const std::int64_t step = steps[i], before = step < 0 ? 1 : 0;
    if (is_onnx_symbol(begins[i]) || is_onnx_symbol(ends[i]) || step == 0 ||
        std::abs(step) > kMaxOnnxExtent || extent != all.shape[axis])
      throw OnnxUnsupported("a part of a constant with unknown ends");
    const auto place = [&](std::int64_t at) {
      return std::clamp<std::int64_t>(at < 0 ? at + extent : at, -before, extent - before);
    };
    const std::int64_t begin = place(begins[i]), end = place(ends[i]),
                       distance = step < 0 ? begin - end : end - begin;
    shape[axis] = distance > 0 ? (distance - 1) / std::abs(step) + 1 : 0;
    if (shape[axis] > 0) first += begin * strides[axis];
    strides[axis] *= step;
  }
  return strided(op, all, shape, strides, first);
}

OnnxTensor fold_gather(OnnxOperator& op) {
  const OnnxTensor all = op.tensor(0), indices = op.tensor(1);
  const std::size_t axis = axis_of(op, op.integer("axis", 0), all.shape.size());
  if (indices.is_real) throw OnnxUnsupported("indices that are floats");
  const auto at = static_cast<std::ptrdiff_t>(axis);
  const std::int64_t extent = all.shape[axis], chosen = std::ssize(indices.integers),
                     inner = strides_of(all.shape)[axis];
  Numbers shape(all.shape.begin(), all.shape.begin() + at);
  shape.insert(shape.end(), indices.shape.begin(), indices.shape.end());
  shape.insert(shape.end(), all.shape.begin() + at + 1, all.shape.end());
  OnnxTensor result = zeros(op, shape, all.is_real);
  for (std::size_t k = 0; k < count_of(result); ++k) {
    const auto place = static_cast<std::int64_t>(k);
    std::int64_t index = indices.integers[static_cast<std::size_t>(place / inner % chosen)];
    if (index < -extent || index >= extent)
      throw OnnxUnsupported("entry " + std::to_string(index) + " of " + std::to_string(extent));
    if (index < 0) index += extent;
    copy_element(all,
                 static_cast<std::size_t>((place / (inner * chosen) * extent + index) * inner +
                                          place % inner),
                 result, k);
  }
  return result;
}

OnnxTensor fold_concat(OnnxOperator& op) {
  std::vector<OnnxTensor> parts;
  for (std::size_t i = 0; i < op.node().inputs.size(); ++i) parts.push_back(op.tensor(i));
  Numbers shape = parts.at(0).shape;
  if (shape.empty()) shape = {1};  // what older exporters write for one entry of a shape
  const std::size_t axis = axis_of(op, op.integer("axis", 0), shape.size());
  shape[axis] = 0;
  for (OnnxTensor& part : parts) {
    if (part.shape.empty()) part.shape = {1};
    Numbers rest = part.shape;
    if (rest.size() != shape.size() || part.is_real != parts[0].is_real)
      throw OnnxUnsupported("constants of different ranks or types");
    shape[axis] += rest[axis];
    rest[axis] = shape[axis];
    if (rest != shape) throw OnnxUnsupported("constants of different shapes");
  }
  OnnxTensor all = zeros(op, shape, parts[0].is_real);
  const Numbers strides = strides_of(shape);
  std::int64_t first = 0;
  for (const OnnxTensor& part : parts) {
    for_each_element(part.shape, strides, first,
                     [&](std::size_t k, std::size_t i) { copy_element(part, k, all, i); });
    first += part.shape[axis] * strides[axis];
  }
  return all;
}

OnnxTensor fold_expand(OnnxOperator& op) {
  const OnnxTensor all = op.tensor(0);
  return expanded(op, all, broadcast_shape(all.shape, op.numbers(1)));
}

OnnxTensor fold_filled(OnnxOperator& op) {
  const Numbers shape = op.numbers(0);
  const io::ReadAttribute* value = op.attribute("value");
  const auto* tensor = value == nullptr ? nullptr : std::get_if<io::StoredTensor>(&value->value);
  if (tensor == nullptr) return zeros(op, shape, true);
  op.set(OnnxConstant{.tensor = tensor, .is_node = true});  // read through the node's output
  const io::ReadNode reader{.type = {},
                            .domain = {},
                            .name = {},
                            .inputs = {op.node().outputs[0]},
                            .outputs = {},
                            .attributes = {}};
  const OnnxTensor one = OnnxOperator(op.all(), reader).tensor(0);
  if (count_of(one) != 1) throw OnnxUnsupported("a value of several elements");
  OnnxTensor all = zeros(op, shape, one.is_real);
  for (std::size_t i = 0; i < count_of(all); ++i) copy_element(one, 0, all, i);
  return all;
}

OnnxTensor fold_range(OnnxOperator& op) {
  const Numbers begin = op.numbers(0), end = op.numbers(1), step = op.numbers(2);
  if (begin.size() != 1 || end.size() != 1 || step.size() != 1 || is_onnx_symbol(begin[0]) ||
      is_onnx_symbol(end[0]) || step[0] == 0 || std::abs(begin[0]) > kMaxOnnxExtent ||
      std::abs(end[0]) > kMaxOnnxExtent || std::abs(step[0]) > kMaxOnnxExtent)
    throw OnnxUnsupported("a range with unknown ends");
  const std::int64_t sign = step[0] > 0 ? 1 : -1;
  const std::int64_t count =
      std::max<std::int64_t>(0, (end[0] - begin[0] + step[0] - sign) / step[0]);
  OnnxTensor all = zeros(op, {count}, false);
  for (std::int64_t i = 0; i < count; ++i)
    all.integers[static_cast<std::size_t>(i)] = begin[0] + i * step[0];
  return all;
}

OnnxTensor fold_scatter(OnnxOperator& op) {
  OnnxTensor all = op.tensor(0);
  const OnnxTensor indices = op.tensor(1), updates = op.tensor(2);
  if (op.text("reduction", "none") != "none" || indices.is_real || indices.shape.empty() ||
      updates.is_real != all.is_real)
    throw OnnxUnsupported("expected integers as indices, values of one type, no reduction");
  const auto depth = static_cast<std::size_t>(indices.shape.back());
  if (depth < 1 || depth > all.shape.size()) throw OnnxUnsupported("indices of another rank");
  const Numbers strides = strides_of(all.shape);
  const auto inner = static_cast<std::size_t>(strides[depth - 1]),
             places = indices.integers.size() / depth;
  if (count_of(updates) != places * inner) throw OnnxUnsupported("values of another shape");
  for (std::size_t place = 0; place < places; ++place) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < depth; ++d) {
      std::int64_t index = indices.integers[place * depth + d];
      const std::int64_t extent = all.shape[d];
      if (index < -extent || index >= extent)
        throw OnnxUnsupported("entry " + std::to_string(index) + " of " + std::to_string(extent));
      offset += (index < 0 ? index + extent : index) * strides[d];
    }
    for (std::size_t i = 0; i < inner; ++i)
      copy_element(updates, place * inner + i, all, static_cast<std::size_t>(offset) + i);
  }
  op.all().computed += count_of(all);
  return all;
}

// Integers that count samples, with a number for each: their product, sum or other shape. Returns
// false for other nodes.
bool fold_sample_indices(OnnxOperator& op) {
  const std::string& type = op.node().type;
  if (type == "Range") {
    if (!op.is_computable(0) || !op.is_computable(1) || !op.is_computable(2) ||
        op.numbers(0) != Numbers{0} || op.numbers(1) != Numbers{kOnnxBatch} ||
        op.numbers(2) != Numbers{1})
      return false;
    op.set(OnnxSampleIndices{1, {.shape = {1}, .integers = {0}, .reals = {}}});
    return true;
  }
  const auto* found = std::get_if<OnnxSampleIndices>(&op.input(0));
  if (found == nullptr || !op.has_input(1) || !op.is_computable(1)) return false;
  OnnxSampleIndices all = *found;
  const OnnxTensor other = op.tensor(1);
  if (type == "Unsqueeze") {  // after the samples
    for (const std::int64_t axis : op.numbers(1)) {
      if (axis < 1) return false;
      all.offsets.shape.push_back(1);
    }
  } else if (type == "Mul" && other.integers.size() == 1) {
    for (std::int64_t& offset : all.offsets.integers)
      offset = computed("Mul", offset, other.integers[0]);
    all.step = computed("Mul", all.step, other.integers[0]);
  } else if (type == "Add" && !other.is_real && other.shape.size() == all.offsets.shape.size() &&
             other.shape.at(0) == 1) {
    const Numbers shape = broadcast_shape(all.offsets.shape, other.shape);
    all.offsets = expanded(op, all.offsets, shape);
    const OnnxTensor added = expanded(op, other, shape);
    for (std::size_t i = 0; i < added.integers.size(); ++i)
      all.offsets.integers[i] = computed("Add", all.offsets.integers[i], added.integers[i]);
  } else {
    return false;
  }
  op.set(std::move(all));
  return true;
}

using Fold = OnnxTensor (*)(OnnxOperator& op);

Fold find_fold(const std::string& type) {
  static const std::map<std::string, Fold> table = [] {
    std::map<std::string, Fold> all{{"Cast", fold_cast},           {"Where", fold_where},
                                    {"Reshape", fold_reshape},     {"Transpose", fold_transpose},
                                    {"Unsqueeze", fold_unsqueeze}, {"Squeeze", fold_squeeze},
                                    {"Slice", fold_slice},         {"Gather", fold_gather},
                                    {"Concat", fold_concat},       {"Expand", fold_expand},
                                    {"Range", fold_range},         {"ConstantOfShape", fold_filled},
                                    {"ScatterND", fold_scatter}};
    for (const char* name :
         {"Add", "Sub", "Mul", "Div", "Mod", "Pow", "Equal", "Less", "Greater", "And", "Or"})
      all.emplace(name, fold_binary);
    for (const char* name : {"Sqrt", "Neg", "Not", "Floor", "Ceil"}) all.emplace(name, fold_unary);
    return all;
  }();
  const auto found = table.find(type);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace

bool fold_node(OnnxOperator& op) {
  const std::string& type = op.node().type;
  const Fold fold = find_fold(type);
  if (fold == nullptr || op.node().inputs.empty()) return false;
  if (op.has_input(0) && fold_sample_indices(op)) return true;
  for (std::size_t i = 0; i < op.node().inputs.size(); ++i) {
    if (!op.has_input(i)) continue;
    // Values of a mask may be stored as a parameter would be; a matrix is transposed by its layer.
    const auto* constant = std::get_if<OnnxConstant>(&op.input(i));
    if (type == "ScatterND" && constant != nullptr) continue;
    if (!op.is_computable(i) || (type == "Transpose" && constant != nullptr &&
                                 constant->tensor->count() > 1 && constant->is_node))
      return false;
  }
  op.set(fold(op));
  return true;
}

}  // namespace models
