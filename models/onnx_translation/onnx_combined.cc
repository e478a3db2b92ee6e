// Brings values in an order in which one layer can combine them.
#include "models/onnx_translation/onnx_combined.h"

#include <algorithm>

#include "io/base/text/text_parts.h"
#include "models/onnx_translation/onnx_plain.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// Gives both values as many dimensions, and cuts the axes of those that both have alike.
bool align(OnnxPlain& a, OnnxPlain& b) {
  while (a.dims.size() < b.dims.size()) a.dims.insert(a.dims.begin(), std::vector<int>{});
  while (b.dims.size() < a.dims.size()) b.dims.insert(b.dims.begin(), std::vector<int>{});
  for (std::size_t i = 0; i < a.dims.size(); ++i)
    if (!a.dims[i].empty() && !b.dims[i].empty() && !refine_plain(a, b, i)) return false;
  return true;
}

bool covers(const OnnxPlain& a, const OnnxPlain& b) {
  for (std::size_t i = 0; i < a.dims.size(); ++i)
    if (a.dims[i].empty() && !b.dims[i].empty()) return false;
  return true;
}

// The axes of `b` in the groups of `a`; false if a group has some of its axes only.
bool groups_like(const OnnxPlain& a, const OnnxGroups& groups, const OnnxPlain& b,
                 OnnxGroups& found) {
  found.clear();
  for (const std::vector<int>& group : groups) {
    found.emplace_back();
    for (const int axis : group)
      for (std::size_t i = 0; i < a.dims.size(); ++i)
        for (std::size_t k = 0; k < a.dims[i].size() && !b.dims[i].empty(); ++k)
          if (a.dims[i][k] == axis) found.back().push_back(b.dims[i][k]);
    if (!found.back().empty() && found.back().size() != group.size()) return false;
  }
  while (!found.empty() && found.front().empty()) found.erase(found.begin());
  if (found.empty()) found.emplace_back();
  return true;
}

// Each axis as a dimension of its own; if they are too many, neighbors for which alike(axis, next)
// is true share one.
template <class Alike>
OnnxGroups single_axes(const OnnxPlain& plain, Alike alike) {
  const bool joins = plain.axes.size() > kMaxOnnxDimensions;
  OnnxGroups groups;
  for (int axis = 0; axis < static_cast<int>(plain.axes.size()); ++axis) {
    if (axis == 0 || !joins || !alike(axis - 1, axis)) groups.emplace_back();
    groups.back().push_back(axis);
  }
  return groups;
}

std::size_t dimension_with(const OnnxPlain& plain, int axis) {
  const auto has_axis = [axis](const std::vector<int>& dim) {
    return std::ranges::find(dim, axis) != dim.end();
  };
  return static_cast<std::size_t>(std::ranges::find_if(plain.dims, has_axis) - plain.dims.begin());
}

OnnxGroups groups_of_dims(const OnnxPlain& plain) {
  OnnxGroups groups;
  for (const std::vector<int>& dim : plain.dims) {
    groups.push_back(dim);
    std::erase(groups.back(), kOnnxBatchAxis);
  }
  return groups;
}

// The inputs of a layer that expands them.
OnnxActivation with_layer(OnnxOperator& op, const OnnxElementwise& layer, OnnxActivation result,
                          const std::vector<OnnxActivation>& values) {
  std::vector<int> inputs;
  for (const OnnxActivation& value : values) inputs.push_back(value.layer);
  result.layer = op.add_layer(layer.kind, inputs, layer.options);
  return result;
}

// Brings all values in ONNX's order, since none has all dimensions of the result.
OnnxActivation combined_in_order(OnnxOperator& op, const OnnxElementwise& layer,
                                 std::vector<OnnxActivation> values) {
  for (OnnxActivation& value : values) value = ordered(op, value, groups_of_dims(value.plain));
  OnnxActivation result = values[0];
  result.plain.axes.clear();
  for (std::size_t i = 0; i < result.plain.dims.size(); ++i) {
    const auto whole = std::ranges::find_if(
        values, [&](const OnnxActivation& value) { return !value.plain.dims[i].empty(); });
    const OnnxPlain& from = (whole == values.end() ? values[0] : *whole).plain;
    result.plain.stored[i] = from.stored[i];
    result.plain.dims[i] = from.dims[i];
    for (int& axis : result.plain.dims[i]) {
      if (axis == kOnnxBatchAxis) continue;
      result.plain.axes.push_back(from.axes[static_cast<std::size_t>(axis)]);
      axis = static_cast<int>(result.plain.axes.size()) - 1;
    }
  }
  return with_layer(op, layer, std::move(result), values);
}

// values[whole] has all dimensions of the result, and keeps its order.
OnnxActivation combined_like(OnnxOperator& op, const OnnxElementwise& layer,
                             std::vector<OnnxActivation> values, std::size_t whole) {
  OnnxActivation& first = values[whole];
  first = materialized(op, std::move(first));
  OnnxGroups groups;
  bool fits = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i == whole) continue;
    values[i] = materialized(op, std::move(values[i]));
    fits = fits && groups_like(first.plain, stored_groups(first.plain), values[i].plain, groups);
  }
  if (!fits) {
    const auto are_alike = [&](int axis, int next) {  // each value has both, or none of them
      const std::size_t dim = dimension_with(first.plain, axis),
                        other = dimension_with(first.plain, next);
      return std::ranges::all_of(values, [&](const OnnxActivation& value) {
        return value.plain.dims[dim].empty() == value.plain.dims[other].empty();
      });
    };
    const OnnxGroups single = single_axes(first.plain, are_alike);
    first = ordered(op, first, single);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i == whole) continue;
    groups_like(first.plain, stored_groups(first.plain), values[i].plain, groups);
    values[i] = ordered(op, values[i], groups);
  }
  return with_layer(op, layer, first, values);
}

// The dimensions of a value that a reduction removes, the last one first, and their axes.
struct ReducedAxes {
  std::vector<std::size_t> dims;
  std::vector<int> axes;

  bool has(int axis) const { return std::ranges::count(axes, axis) > 0; }
};

ReducedAxes reduced_axes(const OnnxPlain& plain, const Numbers& axes) {
  ReducedAxes gone;
  for (const std::int64_t axis : axes) {
    gone.dims.push_back(dimension_of(axis, plain.dims.size()));
    const std::vector<int>& dim = plain.dims[gone.dims.back()];
    gone.axes.insert(gone.axes.end(), dim.begin(), dim.end());
  }
  std::ranges::sort(gone.dims, std::greater<>());
  if (std::ranges::adjacent_find(gone.dims) != gone.dims.end())
    throw OnnxUnsupported("over the axes " + onnx_shape_text(axes) +
                          ", expected each of them once");
  if (gone.dims.empty() || gone.has(kOnnxBatchAxis))
    throw OnnxUnsupported("over the axes " + onnx_shape_text(axes) + " of " +
                          onnx_shape_text(shape_of(plain)) + ", expected some without the samples");
  return gone;
}

// The file may divide a sum over pixels by a number of them, which it has computed.
void expect_any_size(OnnxOperator& op, const OnnxPlain& plain, const std::vector<int>& axes) {
  const std::string& type = op.node().type;
  const bool is_sum = type == "ReduceSum" || type == "ReduceL1" || type == "ReduceL2" ||
                      type == "ReduceSumSquare" || type == "ReduceLogSumExp";
  if (op.all().reading.size && is_sum && extent_of(plain, axes) == kOnnxUnknown)
    throw OnnxUnsupported("a sum over pixels, whose number the file may contain");
}

// The function of the layer `reduce` for this operator.
const char* reduction_of(const std::string& type) {
  if (type == "ReduceMean" || type == "GlobalAveragePool") return "mean";
  const bool is_maximum = type == "ReduceMax" || type == "ReduceMin" || type == "GlobalMaxPool";
  return is_maximum ? "max" : "sum";
}

// Without these axes, or with extents of 1 there.
OnnxActivation reduced(OnnxOperator& op, const char* function, OnnxActivation value,
                       const Numbers& axes, bool keeps_dimensions) {
  ReducedAxes gone = reduced_axes(value.plain, axes);
  expect_any_size(op, value.plain, gone.axes);
  const auto is_reduced = [&](int axis) { return gone.has(axis); };
  OnnxGroups groups = stored_groups(value.plain);
  const bool is_torn = std::ranges::any_of(groups, [&](const std::vector<int>& group) {
    const auto count = std::ranges::count_if(group, is_reduced);
    return count != 0 && count != std::ssize(group);
  });
  if (is_torn) {
    const OnnxGroups apart = single_axes(
        value.plain, [&](int axis, int next) { return is_reduced(axis) == is_reduced(next); });
    value = ordered(op, std::move(value), apart);
    groups = stored_groups(value.plain);
  }
  Numbers places;
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (!groups[i].empty() && is_reduced(groups[i][0])) {
      places.push_back(static_cast<std::int64_t>(i));
      value.plain.stored[i] = 1;
    }
  const std::string name = std::string("\"") + function + "\"";
  const bool keeps = places.size() == groups.size();
  if (!places.empty()) {
    value.layer = op.add_layer("reduce", {value.layer},
                               {{"function", name},
                                {"axes", base::shape_text(places)},
                                {"keep", keeps ? "true" : "false"}});
    op.all().layers.at(value.layer).keeps_last = places.back() + 1 != std::ssize(groups);
  }
  for (std::size_t i = places.size(); i-- > 0 && !keeps;)
    value.plain.stored.erase(value.plain.stored.begin() + places[i]);
  std::ranges::sort(gone.axes, std::greater<>());
  for (const int axis : gone.axes) remove_axis(value.plain, axis);
  for (std::size_t i = 0; i < gone.dims.size() && !keeps_dimensions; ++i)
    value.plain.dims.erase(value.plain.dims.begin() + static_cast<std::ptrdiff_t>(gone.dims[i]));
  return value;
}

}  // namespace

void add_function(OnnxOperator& op, OnnxActivation& value, const std::string& function) {
  value.layer = op.add_layer("activation", {value.layer}, {{"function", "\"" + function + "\""}});
}

OnnxActivation combined_all(OnnxOperator& op, const OnnxElementwise& layer,
                            std::vector<OnnxActivation> values) {
  for (std::size_t pass = 1; pass < values.size(); ++pass)  // a later one may cut more axes
    for (std::size_t i = 0; i < values.size(); ++i)
      for (std::size_t k = i + 1; k < values.size(); ++k)
        if (!align(values[i].plain, values[k].plain))
          throw OnnxUnsupported(onnx_shape_text(values[i].shape) + " and " +
                                onnx_shape_text(values[k].shape) +
                                ", expected one shape, or extents of 1 (as NumPy broadcasts)");
  for (std::size_t i = 0; i < values.size(); ++i)
    if (std::ranges::all_of(values, [&](const OnnxActivation& other) {
          return covers(values[i].plain, other.plain);
        }))
      return combined_like(op, layer, std::move(values), i);
  return combined_in_order(op, layer, std::move(values));
}

// Sums and products read the value with all dimensions first.
OnnxActivation combined(OnnxOperator& op, const char* kind, OnnxActivation a, OnnxActivation b) {
  const std::string name = kind;
  OnnxPlain first = a.plain, second = b.plain;
  const bool swaps = name != "subtract" && name != "divide" && align(first, second) &&
                     !covers(first, second) && covers(second, first);
  if (swaps) std::swap(a, b);
  return combined_all(op, {kind}, {std::move(a), std::move(b)});
}

void translate_reduction(OnnxOperator& op, const Numbers& axes) {
  const std::string& type = op.node().type;
  OnnxActivation value = plain_input(op, 0);
  if (type == "ReduceMin") value.plain.scale = -value.plain.scale;
  value = materialized(op, std::move(value));
  if (type == "ReduceL1") add_function(op, value, "abs");
  if (type == "ReduceL2" || type == "ReduceSumSquare")
    value.layer = op.add_layer("multiply", {value.layer, value.layer});
  value = reduced(op, reduction_of(type), std::move(value), axes, op.integer("keepdims", 1) != 0);
  if (type == "ReduceL2") add_function(op, value, "sqrt");
  if (type == "ReduceMin") value.plain.scale = -1;
  set_plain(op, std::move(value));
}

// The largest number is subtracted first, so that no power of e overflows.
void translate_log_sum_exp(OnnxOperator& op, const Numbers& axes) {
  const OnnxActivation value = materialized(op, plain_input(op, 0));
  const OnnxActivation largest = reduced(op, "max", value, axes, /*keeps_dimensions=*/true);
  OnnxActivation powers = combined(op, "subtract", value, largest);
  add_function(op, powers, "exp");
  OnnxActivation sum = reduced(op, "sum", std::move(powers), axes, /*keeps_dimensions=*/true);
  add_function(op, sum, "log");
  sum = combined(op, "add", std::move(sum), largest);
  if (op.integer("keepdims", 1) == 0)
    for (const std::size_t dim : reduced_axes(value.plain, axes).dims)
      sum.plain.dims.erase(sum.plain.dims.begin() + static_cast<std::ptrdiff_t>(dim));
  set_plain(op, std::move(sum));
}

OnnxActivation global_average(OnnxOperator& op, OnnxActivation value, bool keeps_axes) {
  if (value.layout == OnnxActivation::Layout::kImage) {
    value.layer = op.add_layer("global_average_pool", {value.layer});
    value.layout = OnnxActivation::Layout::kVector;
  }
  value.shape.resize(2);
  if (keeps_axes) value.shape.insert(value.shape.end(), {1, 1});
  return value;
}

}  // namespace models
