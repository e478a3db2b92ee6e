// The layers that bring plain values into the order that another layer needs.
#include <algorithm>
#include <numeric>

#include "io/base/text/text_parts.h"
#include "models/onnx_translation/onnx_plain.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

Numbers extents_of(const OnnxPlain& plain, const OnnxGroups& groups) {
  Numbers extents;
  for (const std::vector<int>& group : groups) extents.push_back(extent_of(plain, group));
  return extents;
}

// The same numbers in the same order, with other dimensions.
void store_as(OnnxOperator& op, OnnxActivation& value, const OnnxGroups& groups) {
  const Numbers extents = extents_of(value.plain, groups);
  if (extents == value.plain.stored) return;
  if (std::ranges::any_of(extents, is_onnx_symbol))
    throw OnnxUnsupported("it changes the shape of " + onnx_shape_text(value.shape) +
                          ", whose height and width the file does not have");
  value.layer = op.add_layer("reshape", {value.layer}, {{"shape", base::shape_text(extents)}});
  value.plain.stored = extents;
}

// These axes as one dimension, and all axes before and after the first of them as one each.
OnnxGroups three_groups(const OnnxPlain& plain, const std::vector<int>& axes) {
  OnnxGroups groups{{}, axes, {}};
  for (int other = 0; other < static_cast<int>(plain.axes.size()); ++other)
    if (std::ranges::find(axes, other) == axes.end())
      groups[other < axes[0] ? 0 : 2].push_back(other);
  return groups;
}

// The stored dimensions, with this axis as one of its own.
OnnxGroups groups_around(const OnnxPlain& plain, int axis) {
  OnnxGroups groups;
  for (const std::vector<int>& group : stored_groups(plain)) {
    const auto at = std::ranges::find(group, axis);
    if (at == group.end()) {
      groups.push_back(group);
      continue;
    }
    if (at != group.begin()) groups.emplace_back(group.begin(), at);
    groups.push_back({axis});
    if (at + 1 != group.end()) groups.emplace_back(at + 1, group.end());
  }
  return groups.size() <= kMaxOnnxDimensions ? groups : three_groups(plain, {axis});
}

std::size_t place_of(const OnnxGroups& groups, int axis) {
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (std::ranges::find(groups[i], axis) != groups[i].end()) return i;
  return groups.size();
}

void select_entry(OnnxOperator& op, OnnxActivation& value, int axis) {
  const OnnxGroups groups = groups_around(value.plain, axis);
  store_as(op, value, groups);
  const std::size_t place = place_of(groups, axis);
  const std::int64_t entry = value.plain.axes[static_cast<std::size_t>(axis)].entry;
  value.layer = op.add_layer(
      "slice", {value.layer},
      {{"axis", std::to_string(place)}, {"first", std::to_string(entry)}, {"count", "1"}});
  op.all().layers.at(value.layer).keeps_last = place + 1 != value.plain.stored.size();
  value.plain.stored[place] = 1;
  remove_axis(value.plain, axis);
}

// The dimensions that are permuted: the stored ones if none of them is torn apart, else runs of
// axes that stay together.
OnnxGroups permuted_parts(const OnnxPlain& plain, const std::vector<int>& order) {
  std::vector<std::size_t> places(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) places[static_cast<std::size_t>(order[i])] = i;
  const auto stays = [&](int axis) {  // with the axis before it
    return axis > 0 &&
           places[static_cast<std::size_t>(axis)] == places[static_cast<std::size_t>(axis) - 1] + 1;
  };
  OnnxGroups stored = stored_groups(plain);
  const bool is_whole = std::ranges::all_of(stored, [&](const std::vector<int>& group) {
    return std::all_of(group.begin() + (group.empty() ? 0 : 1), group.end(), stays);
  });
  if (is_whole && plain.stored.size() <= kMaxOnnxDimensions) return stored;
  OnnxGroups runs;
  for (int axis = 0; axis < static_cast<int>(order.size()); ++axis) {
    if (!stays(axis)) runs.emplace_back();
    runs.back().push_back(axis);
  }
  return runs;
}

// The order that moves the first part of `order` that does not follow the one before it to its
// place after that one; the other axes stay.
std::vector<int> order_of_one_move(const OnnxGroups& parts, const std::vector<int>& order) {
  std::vector<int> moved;
  for (std::size_t i = 1; i < order.size() && moved.empty(); ++i)
    if (order[i] != order[i - 1] + 1) moved = parts[place_of(parts, order[i])];
  const auto before = std::ranges::find(order, moved.front()) - 1;
  std::vector<int> result;
  for (int axis = 0; axis < static_cast<int>(order.size()); ++axis) {
    if (std::ranges::find(moved, axis) == moved.end()) result.push_back(axis);
    if (axis == *before) result.insert(result.end(), moved.begin(), moved.end());
  }
  return result;
}

void permute(OnnxOperator& op, OnnxActivation& value, std::vector<int> order) {
  const OnnxGroups parts = permuted_parts(value.plain, order);
  if (parts.size() > kMaxOnnxDimensions) {  // one part less after each move
    const std::vector<int> first = order_of_one_move(parts, order);
    permute(op, value, first);
    for (int& axis : order) axis = static_cast<int>(std::ranges::find(first, axis) - first.begin());
    return permute(op, value, order);
  }
  store_as(op, value, parts);
  Numbers places, stored, seen(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i].empty()) places.push_back(static_cast<std::int64_t>(i));  // an extent of 1
  for (const int axis : order) {
    const std::size_t part = place_of(parts, axis);
    if (seen[part]++ == 0) places.push_back(static_cast<std::int64_t>(part));
  }
  for (const std::int64_t place : places)
    stored.push_back(value.plain.stored[static_cast<std::size_t>(place)]);
  value.layer = op.add_layer("permute", {value.layer}, {{"order", base::shape_text(places)}});
  std::vector<OnnxPlain::Axis> axes;
  std::vector<int> renamed(order.size());
  for (const int axis : order) {
    renamed[static_cast<std::size_t>(axis)] = static_cast<int>(axes.size());
    axes.push_back(value.plain.axes[static_cast<std::size_t>(axis)]);
  }
  value.plain.axes = std::move(axes);
  value.plain.stored = std::move(stored);
  for (std::vector<int>& dim : value.plain.dims)
    for (int& axis : dim)
      if (axis != kOnnxBatchAxis) axis = renamed[static_cast<std::size_t>(axis)];
}

// Multiplies by the factor. A product of matrices has one of its own: a copy of it replaces the
// layer without, which is left out if nothing else reads it.
void multiply(OnnxOperator& op, OnnxActivation& value) {
  OnnxTranslation& all = op.all();
  double scale = value.plain.scale;
  value.plain.scale = 1;
  const auto product = all.products.find(value.layer);
  if (product == all.products.end()) {
    value.layer =
        op.add_layer("scale_shift", {value.layer}, {{"scale", base::shortest_text(scale)}});
    return;
  }
  OnnxProduct scaled = product->second;
  scaled.first.plain.scale *= scale;
  const OnnxListedLayer& layer = all.layers.at(value.layer);
  std::vector<std::pair<std::string, std::string>> options = layer.options;
  for (const auto& [key, text] : options)
    if (key == "scale") scale *= std::stod(text);
  std::erase_if(options, [](const auto& option) { return option.first == "scale"; });
  options.emplace_back("scale", base::shortest_text(scale));
  value.layer = op.add_layer("matmul", std::vector<int>(layer.inputs), std::move(options));
  all.products[value.layer] = std::move(scaled);
}

// Joins axes that follow each other, as one dimension has them and nothing else.
void join_axes(OnnxPlain& plain, int first, std::size_t count) {
  for (std::size_t i = 1; i < count; ++i) {
    plain.axes[static_cast<std::size_t>(first)].extent *=
        plain.axes[static_cast<std::size_t>(first) + 1].extent;
    remove_axis(plain, first + 1);
  }
}

}  // namespace

OnnxActivation materialized(OnnxOperator& op, OnnxActivation value) {
  value = as_plain(value);
  for (int axis = static_cast<int>(value.plain.axes.size()) - 1; axis >= 0; --axis)
    if (value.plain.axes[static_cast<std::size_t>(axis)].entry >= 0) select_entry(op, value, axis);
  if (value.plain.scale != 1) multiply(op, value);
  return value;
}

OnnxActivation ordered(OnnxOperator& op, OnnxActivation value, const OnnxGroups& groups) {
  value = as_plain(value);
  // Axes with a selected entry are not in the groups, and disappear.
  std::vector<int> order;
  OnnxGroups own = groups;
  for (int axis = static_cast<int>(value.plain.axes.size()) - 1; axis >= 0; --axis)
    if (value.plain.axes[static_cast<std::size_t>(axis)].entry >= 0)
      for (std::vector<int>& group : own)
        for (int& other : group)
          if (other > axis) --other;
  value = materialized(op, std::move(value));
  for (const std::vector<int>& group : own) order.insert(order.end(), group.begin(), group.end());
  if (!std::ranges::is_sorted(order)) permute(op, value, order);
  OnnxGroups sorted = own;
  int next = 0;
  for (std::vector<int>& group : sorted)
    for (int& axis : group) axis = next++;
  store_as(op, value, sorted);
  return value;
}

OnnxActivation with_last(OnnxOperator& op, OnnxActivation value, const std::vector<int>& axes) {
  value = as_plain(value);
  OnnxGroups groups = stored_groups(value.plain);
  const bool has_entries = std::ranges::any_of(
      value.plain.axes, [](const OnnxPlain::Axis& axis) { return axis.entry >= 0; });
  if (!has_entries && !groups.empty() && groups.back() == axes)
    return materialized(op, std::move(value));
  groups.clear();
  for (int axis = 0; axis < static_cast<int>(value.plain.axes.size()); ++axis)
    if (value.plain.axes[static_cast<std::size_t>(axis)].entry < 0 &&
        std::ranges::find(axes, axis) == axes.end())
      groups.push_back({axis});
  constexpr std::size_t kOthers = kMaxOnnxDimensions - 1;
  if (groups.size() > kOthers) {
    for (std::size_t i = kOthers; i < groups.size(); ++i)
      groups[kOthers - 1].push_back(groups[i][0]);
    groups.resize(kOthers);
  }
  groups.push_back(axes);
  return ordered(op, std::move(value), groups);
}

OnnxActivation with_axis(OnnxOperator& op, OnnxActivation value, std::size_t dim,
                         std::size_t& place) {
  value = materialized(op, std::move(value));
  if (contains_samples(value.plain.dims.at(dim)))
    throw OnnxUnsupported("dimension " + std::to_string(dim) + " of " +
                          onnx_shape_text(value.shape) + " contains the samples");
  std::vector<int> axes = value.plain.dims[dim];
  OnnxGroups groups = stored_groups(value.plain);
  if (axes.empty()) {  // an extent of 1 before all others
    groups.insert(groups.begin(), axes);
    value = ordered(op, std::move(value), groups);
    place = 0;
    return value;
  }
  place = place_of(groups, axes[0]);
  if (groups[place] != axes) {
    groups.clear();
    for (int axis = 0; axis < static_cast<int>(value.plain.axes.size()); ++axis) {
      if (axis == axes[0]) groups.push_back(axes);
      if (std::ranges::find(axes, axis) == axes.end()) groups.push_back({axis});
    }
    if (groups.size() > kMaxOnnxDimensions) groups = three_groups(value.plain, axes);
    value = ordered(op, std::move(value), groups);
    axes = value.plain.dims[dim];
    place = place_of(stored_groups(value.plain), axes[0]);
  }
  join_axes(value.plain, axes[0], axes.size());
  return value;
}

OnnxActivation as_image(OnnxOperator& op, const OnnxActivation& value) {
  const OnnxActivation from = as_plain(value);
  const auto& dims = from.plain.dims;
  const bool is_image = dims.size() == 4 && dims[0] == std::vector<int>{kOnnxBatchAxis} &&
                        std::none_of(dims.begin() + 1, dims.end(), contains_samples);
  if (!is_image)
    throw OnnxUnsupported("it reads " + onnx_shape_text(shape_of(from.plain)) +
                          ", expected an image, [batch, channels, height, width]");
  return as_special(ordered(op, from, {dims[2], dims[3], dims[1]}));
}

OnnxActivation in_order(OnnxOperator& op, OnnxActivation value) {
  value = as_plain(value);
  OnnxGroups runs(1);
  std::size_t before_batch = 0;
  bool has_batch = false;
  for (const std::vector<int>& dim : value.plain.dims)
    for (const int axis : dim) {
      if (axis != kOnnxBatchAxis) {
        runs.back().push_back(axis);
        continue;
      }
      has_batch = true;
      before_batch = runs.back().empty() ? 0 : 1;
      if (before_batch > 0) runs.emplace_back();
    }
  if (runs.size() > 1 && runs.back().empty()) runs.pop_back();
  value = ordered(op, std::move(value), runs);
  // The caller cuts the one dimension of all numbers.
  OnnxPlain joined{.stored = value.plain.stored, .axes = {}, .dims = {{}}};
  for (std::size_t i = 0; i < joined.stored.size(); ++i) {
    if (has_batch && i == before_batch) joined.dims[0].push_back(kOnnxBatchAxis);
    if (joined.stored[i] == 1) continue;
    joined.dims[0].push_back(static_cast<int>(joined.axes.size()));
    joined.axes.push_back({joined.stored[i]});
  }
  if (has_batch && before_batch >= joined.stored.size()) joined.dims[0].push_back(kOnnxBatchAxis);
  value.plain = std::move(joined);
  return value;
}

}  // namespace models
