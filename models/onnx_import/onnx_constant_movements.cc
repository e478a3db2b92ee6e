// Constants in another shape or order, and parts of them.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "models/onnx_import/onnx_folding.h"
#include "models/onnx_translation/onnx_plain.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

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
    if (to[i] == -1 && free < 0)
      free = static_cast<std::int64_t>(i);
    else if (to[i] < 0 || __builtin_mul_overflow(known, to[i], &known))
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
  Numbers sorted = order, wanted(all.shape.size()), shape, strides;
  std::ranges::sort(sorted);
  std::iota(wanted.begin(), wanted.end(), 0);
  if (sorted != wanted)
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
  const auto [begins, ends, axes, steps] = slice_numbers(op);
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
    if (shape[axis] > 1) strides[axis] *= step;  // a single entry could repeat any step
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

// The same numbers for each sample are computed for one of them, from which sums expand them.
OnnxTensor fold_expand(OnnxOperator& op) {
  const OnnxTensor all = op.tensor(0);
  Numbers to = op.numbers(1);
  if (to.size() > 1 && to[0] == kOnnxBatch) to[0] = 1;
  return expanded(op, all, broadcast_shape(all.shape, to));
}

// Each dimension becomes two: the first repeats the second.
OnnxTensor fold_tile(OnnxOperator& op) {
  const OnnxTensor all = op.tensor(0);
  const Numbers repeats = op.numbers(1), own = strides_of(all.shape);
  if (repeats.size() != all.shape.size())
    throw OnnxUnsupported("repeats " + onnx_shape_text(repeats) + " of " +
                          onnx_shape_text(all.shape));
  Numbers shape, strides, whole;
  for (std::size_t i = 0; i < repeats.size(); ++i) {
    if (repeats[i] < 1 || repeats[i] > kMaxOnnxExtent || all.shape[i] > kMaxOnnxExtent)
      throw OnnxUnsupported("repeats " + onnx_shape_text(repeats));
    whole.push_back(repeats[i] * all.shape[i]);
    if (repeats[i] > 1) shape.push_back(repeats[i]), strides.push_back(0);
    if (all.shape[i] != 1) shape.push_back(all.shape[i]), strides.push_back(own[i]);
  }
  OnnxTensor to = strided(op, all, shape, strides);
  to.shape = whole;
  return to;
}

// The same number for each sample is computed for one of them, from which sums expand it.
OnnxTensor fold_filled(OnnxOperator& op) {
  Numbers shape = op.numbers(0);
  if (shape.size() > 1 && shape[0] == kOnnxBatch) shape[0] = 1;
  const io::ReadAttribute* value = op.attribute("value");
  const auto* tensor = value == nullptr ? nullptr : std::get_if<io::StoredTensor>(&value->value);
  if (tensor == nullptr) return zeros(op, shape, true);
  op.set(OnnxConstant{.tensor = tensor});  // read through the node's output
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

// Sums over the first elements of an axis, which is not that of samples.
OnnxTensor fold_cumulative(OnnxOperator& op) {
  OnnxTensor all = op.tensor(0);
  const Numbers axes = op.numbers(1);
  if (axes.size() != 1 || !all.is_real || op.integer("exclusive", 0) != 0 ||
      op.integer("reverse", 0) != 0)
    throw OnnxUnsupported("expected floats and one axis, without exclusive and reverse");
  const std::size_t axis = dimension_of(axes[0], all.shape.size());
  if (axis == 0) throw OnnxUnsupported("over axis 0, expected another one: that of samples");
  const auto step = static_cast<std::size_t>(strides_of(all.shape)[axis]),
             count = static_cast<std::size_t>(all.shape[axis]);
  for (std::size_t i = step; i < all.reals.size(); ++i)
    if (i / step % count != 0) all.reals[i] += all.reals[i - step];
  return all;
}

// PyTorch's arange of floats.
OnnxTensor real_range(OnnxOperator& op) {
  std::array<double, 3> ends{};
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const OnnxTensor found = converted(op, op.tensor(i), 1);
    if (found.reals.size() != 1) throw OnnxUnsupported("a range with several ends");
    ends[i] = found.reals[0];
  }
  const auto [begin, end, step] = ends;
  const double count = std::max(0.0, std::ceil((end - begin) / step));
  if (!(count <= kMaxOnnxExtent)) throw OnnxUnsupported("a range with unknown ends");
  OnnxTensor all = zeros(op, {static_cast<std::int64_t>(count)}, true);
  for (std::size_t i = 0; i < all.reals.size(); ++i)
    all.reals[i] = begin + static_cast<double>(i) * step;
  return all;
}

OnnxTensor fold_range(OnnxOperator& op) {
  for (const std::size_t i : {0U, 1U, 2U})
    if (op.tensor(i).is_real) return real_range(op);
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
  return all;
}

}  // namespace

std::map<std::string, OnnxFold> onnx_constant_movements() {
  return {{"Reshape", fold_reshape},     {"Transpose", fold_transpose},
          {"Unsqueeze", fold_unsqueeze}, {"Squeeze", fold_squeeze},
          {"Slice", fold_slice},         {"Gather", fold_gather},
          {"Concat", fold_concat},       {"Expand", fold_expand},
          {"Range", fold_range},         {"ConstantOfShape", fold_filled},
          {"ScatterND", fold_scatter},   {"Tile", fold_tile},
          {"CumSum", fold_cumulative}};
}

}  // namespace models
