// Operators that select, join and repeat numbers.
#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <string>

#include "io/base/text/text_parts.h"
#include "models/onnx_import/onnx_operators.h"
#include "models/onnx_tokens/onnx_tokens.h"
#include "models/onnx_translation/onnx_combined.h"
#include "models/onnx_translation/onnx_plain.h"
#include "models/onnx_translation/onnx_tensors.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// Entries [first, first + count * step) of a dimension.
struct Part {
  std::size_t dim = 0;
  std::int64_t first = 0, count = 0, step = 1;
};

OnnxActivation sliced(OnnxOperator& op, OnnxActivation value, const Part& part) {
  std::size_t place = 0;
  value = with_axis(op, std::move(value), part.dim, place);
  std::vector<std::pair<std::string, std::string>> options{{"first", std::to_string(part.first)},
                                                           {"count", std::to_string(part.count)}};
  if (place + 1 != value.plain.stored.size()) options.emplace_back("axis", std::to_string(place));
  if (part.step != 1) options.emplace_back("step", std::to_string(part.step));
  value.layer = op.add_layer("slice", {value.layer}, std::move(options));
  op.all().layers.at(value.layer).keeps_last = place + 1 != value.plain.stored.size();
  value.plain.stored[place] = part.count;
  std::vector<int>& dim = value.plain.dims[part.dim];
  if (dim.empty()) return value;
  value.plain.axes[static_cast<std::size_t>(dim[0])].extent = part.count;
  if (part.count == 1) remove_axis(value.plain, dim[0]);
  return value;
}

std::int64_t known_extent(const OnnxActivation& value, std::size_t dim) {
  const std::int64_t extent = extent_of(value.plain, value.plain.dims.at(dim));
  if (is_onnx_symbol(extent))
    throw OnnxUnsupported("axis " + std::to_string(dim) + " of " + onnx_shape_text(value.shape) +
                          ", expected one of known extent");
  return extent;
}

// Equal parts of one axis are entries of an axis before it: queries, keys and values.
bool set_entries(OnnxOperator& op, const OnnxActivation& value, std::size_t dim,
                 const Numbers& counts) {
  const std::vector<int>& axes = value.plain.dims[dim];
  const auto parts = std::ssize(counts);
  if (axes.size() != 1 || parts < 2 || counts != Numbers(counts.size(), counts[0])) return false;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    OnnxActivation part = value;
    const int axis = part.plain.dims[dim][0];
    if (counts[0] > 1) split_axis(part.plain, axis, parts);
    part.plain.axes[static_cast<std::size_t>(axis)].entry = static_cast<std::int64_t>(i);
    std::erase(part.plain.dims[dim], axis);
    set_plain(op, std::move(part), i);
  }
  return true;
}

void translate_split(OnnxOperator& op) {
  OnnxActivation value = plain_input(op, 0);
  const std::size_t dim = dimension_of(op.integer("axis", 0), value.plain.dims.size());
  const std::int64_t extent = known_extent(value, dim);
  const std::vector<std::string>& outputs = op.node().outputs;
  const std::int64_t parts = std::ssize(outputs), size = (extent + parts - 1) / parts;
  Numbers counts = op.has_input(1) ? op.numbers(1) : op.integers("split").value_or(Numbers{});
  if (counts.empty())  // equal ones; the last one may be smaller
    for (std::int64_t left = extent; left > 0; left -= size) counts.push_back(std::min(size, left));
  std::int64_t first = 0;
  if (std::ssize(counts) != parts || std::ranges::min(counts) < 1 ||
      std::ranges::max(counts) > extent ||  // the sum may not fit in 64 bits
      std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) != extent)
    throw OnnxUnsupported("parts " + onnx_shape_text(counts) + " of " +
                          onnx_shape_text(value.shape) + ", expected all " +
                          std::to_string(extent) + " entries in " + std::to_string(parts) +
                          " parts");
  const bool is_special = as_special(value).layout != OnnxActivation::Layout::kPlain;
  if (!is_special && set_entries(op, value, dim, counts)) return;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    set_plain(op, sliced(op, value, {dim, first, counts[i]}), i);
    first += counts[i];
  }
}

// These entries of a dimension; the first ones in their order are a part of it.
OnnxActivation chosen_entries(OnnxOperator& op, OnnxActivation value, std::size_t dim,
                              const Numbers& indices) {
  std::size_t place = 0;
  value = with_axis(op, std::move(value), dim, place);
  const std::int64_t count = std::ssize(indices), extent = value.plain.stored[place];
  Numbers first(indices.size());
  std::iota(first.begin(), first.end(), 0);
  if (indices == first && count == extent) return value;
  if (indices == first) return sliced(op, std::move(value), {dim, 0, count});
  value.layer =
      op.add_layer("gather", {value.layer},
                   {{"axis", std::to_string(place)}, {"indices", base::shape_text(indices)}});
  op.all().layers.at(value.layer).keeps_last = place + 1 != value.plain.stored.size();
  value.plain.stored[place] = count;
  std::vector<int>& axes = value.plain.dims[dim];
  if (axes.empty()) {
    if (count != 1) {
      insert_axis(value.plain, 0, count);
      axes = {0};
    }
  } else {
    value.plain.axes[static_cast<std::size_t>(axes[0])].extent = count;
    if (count == 1) remove_axis(value.plain, axes[0]);
  }
  return value;
}

// Entries [first, ...] down to the one after `end`, as PyTorch's flip has them.
OnnxActivation descending_entries(OnnxOperator& op, OnnxActivation value, std::size_t dim,
                                  const std::array<std::int64_t, 3>& part) {
  const auto [begin, end, step] = part;
  const std::int64_t extent = known_extent(value, dim);
  const auto place = [&](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? at + extent : at, -1, extent - 1);
  };
  const std::int64_t first = place(begin), last = place(end), stride = std::max(step, -extent);
  if (first <= last) throw OnnxUnsupported("a part without entries");
  Numbers indices = zeros(op, {(first - last - 1) / -stride + 1}, false).integers;  // counts them
  for (std::size_t i = 0; i < indices.size(); ++i)
    indices[i] = first + static_cast<std::int64_t>(i) * stride;
  return extent == 1 ? value : chosen_entries(op, std::move(value), dim, indices);
}

// Whether a part of the samples has all of them.
bool has_all_samples(OnnxOperator& op, const OnnxActivation& value, std::size_t dim,
                     const std::array<std::int64_t, 3>& part) {
  const auto [begin, end, step] = part;
  const std::int64_t fixed = op.all().fixed_batch;
  const bool is_fixed = fixed > 0 && end >= fixed;
  if (begin == 0 && step == 1 && value.plain.dims[dim] == std::vector<int>{kOnnxBatchAxis} &&
      is_fixed)
    return true;
  throw OnnxUnsupported("a part of the samples, dimension " + std::to_string(dim) + " of " +
                        onnx_shape_text(value.shape) + ", expected all of them");
}

// Returns true if the part has all entries, also of an extent that is not a number.
bool has_all_entries(const OnnxActivation& value, std::size_t dim,
                     const std::array<std::int64_t, 3>& part) {
  const auto [begin, end, step] = part;
  if (begin != 0 || step != 1) return false;
  if (end > kMaxOnnxExtent) return true;
  return is_onnx_symbol(end) && end != kOnnxUnknown &&  // two unknown extents may differ
         end == extent_of(value.plain, value.plain.dims[dim]);
}

// The part of one dimension.
OnnxActivation part_of(OnnxOperator& op, OnnxActivation value, std::size_t dim,
                       const std::array<std::int64_t, 3>& part) {
  const auto [begin, end, step] = part;
  if (has_all_entries(value, dim, part)) return value;
  if (begin == kOnnxUnknown || end == kOnnxUnknown)
    throw OnnxUnsupported("a part of " + onnx_shape_text(value.shape) +
                          " that ends at a place computed from its height or width, which the "
                          "file leaves open; export the network with a fixed height and width");
  if (is_onnx_symbol(begin) || is_onnx_symbol(end) || step == 0)
    throw OnnxUnsupported("a part with unknown ends or a step of 0");
  if (contains_samples(value.plain.dims[dim]) && has_all_samples(op, value, dim, part))
    return value;
  if (step < 0) return descending_entries(op, std::move(value), dim, part);
  const std::int64_t extent = known_extent(value, dim);
  const auto place = [&](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? at + extent : at, 0, extent);
  };
  const std::int64_t first = place(begin), last = place(end);
  if (last <= first) throw OnnxUnsupported("a part without entries");
  const std::int64_t count = (last - first - 1) / step + 1;
  return count < extent ? sliced(op, std::move(value), {dim, first, count, step}) : value;
}

void translate_slice(OnnxOperator& op) {
  OnnxActivation value = plain_input(op, 0);
  const auto [begins, ends, axes, steps] = slice_numbers(op);
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const std::size_t dim = dimension_of(axes[i], value.plain.dims.size());
    value = part_of(op, std::move(value), dim, {begins[i], ends[i], steps[i]});
  }
  set_plain(op, std::move(value));
}

// One entry of a dimension, which disappears.
OnnxActivation entry_of(OnnxOperator& op, OnnxActivation value, std::size_t dim,
                        std::int64_t index) {
  if (value.plain.dims[dim].size() > 1) {
    std::size_t place = 0;
    value = with_axis(op, std::move(value), dim, place);
  }
  std::vector<int>& axes = value.plain.dims[dim];
  if (!axes.empty()) value.plain.axes.at(static_cast<std::size_t>(axes[0])).entry = index;
  value.plain.dims.erase(value.plain.dims.begin() + static_cast<std::ptrdiff_t>(dim));
  return value;
}

// Each sample's own entries in their order, as a mean is read as strided memory.
bool set_own_entries(OnnxOperator& op) {
  const auto* indices = std::get_if<OnnxSampleIndices>(&op.input(1));
  if (indices == nullptr) return false;
  OnnxActivation value = plain_input(op, 0);
  Numbers shape = indices->offsets.shape;
  shape[0] = kOnnxBatch;
  Numbers expected(indices->offsets.integers.size());
  std::iota(expected.begin(), expected.end(), 0);
  if (value.plain.dims.size() != 1 || op.integer("axis", 0) != 0 ||
      indices->step != std::ssize(expected) || indices->offsets.integers != expected ||
      value.plain.dims[0].empty() || value.plain.dims[0][0] != kOnnxBatchAxis ||
      !reshape_plain(value.plain, shape, op.all().fixed_batch))
    throw OnnxUnsupported("entries that are chosen by sample");
  set_plain(op, std::move(value));
  return true;
}

// The entries of one dimension that a constant names; their dimensions replace it.
void set_entries_of(OnnxOperator& op, OnnxActivation value, std::size_t dim, OnnxTensor indices) {
  const std::int64_t extent = known_extent(value, dim);
  if (indices.is_real || indices.integers.empty())
    throw OnnxUnsupported("indices without integers");
  for (std::int64_t& index : indices.integers) {
    if (index < -extent || index >= extent)
      throw OnnxUnsupported("entry " + std::to_string(index) + " of " + std::to_string(extent));
    if (index < 0) index += extent;
  }
  if (indices.shape.empty())
    return set_plain(op, entry_of(op, std::move(value), dim, indices.integers[0]));
  value = chosen_entries(op, std::move(value), dim, indices.integers);
  Numbers shape = shape_of(value.plain);
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(dim));
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(dim), indices.shape.begin(),
               indices.shape.end());
  if (!reshape_plain(value.plain, shape, 0)) throw OnnxUnsupported("indices of this shape");
  set_plain(op, std::move(value));
}

OnnxTensor constant_indices(OnnxOperator& op) {
  if (op.is_activation(1) || !op.is_computable(1))
    throw OnnxUnsupported("indices that are computed from samples");
  return op.tensor(1);
}

void translate_gather(OnnxOperator& op) {
  if (set_embedding(op) || set_own_entries(op)) return;
  OnnxActivation value = plain_input(op, 0);
  const std::size_t dim = dimension_of(op.integer("axis", 0), value.plain.dims.size());
  known_extent(value, dim);
  set_entries_of(op, std::move(value), dim, constant_indices(op));
}

// Each row of indices names an entry of the first dimensions, which become one.
void translate_gather_nd(OnnxOperator& op) {
  op.refuse_tokens(0);
  OnnxActivation value = materialized(op, plain_input(op, 0));
  OnnxTensor rows = constant_indices(op);
  std::vector<std::vector<int>>& dims = value.plain.dims;
  const std::int64_t depth = rows.shape.empty() ? 0 : rows.shape.back();
  if (rows.is_real || op.integer("batch_dims", 0) != 0 || depth < 1 || depth > std::ssize(dims))
    throw OnnxUnsupported("expected integers as indices of the first dimensions, and batch_dims 0");
  rows.shape.pop_back();
  OnnxTensor indices{.shape = rows.shape, .integers = {}, .reals = {}};
  for (std::size_t at = 0; at < rows.integers.size(); at += static_cast<std::size_t>(depth)) {
    std::int64_t place = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(depth); ++d) {
      const std::int64_t extent = known_extent(value, d), index = rows.integers[at + d];
      if (index < -extent || index >= extent)
        throw OnnxUnsupported("entry " + std::to_string(index) + " of " + std::to_string(extent));
      if (__builtin_mul_overflow(place, extent, &place) ||
          __builtin_add_overflow(place, index < 0 ? index + extent : index, &place))
        throw OnnxUnsupported("entries of " + onnx_shape_text(value.shape));
    }
    indices.integers.push_back(place);
  }
  for (std::int64_t d = 1; d < depth; ++d) {
    dims[0].insert(dims[0].end(), dims[1].begin(), dims[1].end());
    dims.erase(dims.begin() + 1);
  }
  set_entries_of(op, std::move(value), 0, std::move(indices));
}

// The order of axes as (dimension, place in it); the joined dimension counts as one.
using Order = std::vector<std::pair<std::size_t, std::size_t>>;

Order order_of(const OnnxPlain& plain, std::size_t joined) {
  Order order;
  for (int axis = 0; axis < static_cast<int>(plain.axes.size()); ++axis)
    for (std::size_t dim = 0; dim < plain.dims.size(); ++dim)
      for (std::size_t k = 0; k < plain.dims[dim].size(); ++k)
        if (plain.dims[dim][k] == axis && (dim != joined || k == 0)) order.emplace_back(dim, k);
  const auto is_joined = [&](const auto& entry) { return entry.first == joined; };
  if (std::ranges::none_of(order, is_joined)) order.insert(order.begin(), {joined, 0});
  return order;
}

OnnxGroups groups_in(const OnnxPlain& plain, const Order& order, std::size_t joined) {
  OnnxGroups groups;
  for (const auto& [dim, k] : order) {
    if (dim == joined)
      groups.push_back(plain.dims[dim]);
    else
      groups.push_back({plain.dims[dim].at(k)});
  }
  return groups;
}

[[noreturn]] void refuse_parts(const OnnxActivation& a, const OnnxActivation& b) {
  throw OnnxUnsupported(onnx_shape_text(a.shape) + " and " + onnx_shape_text(b.shape) +
                        ", expected tensors that differ in one dimension alone");
}

// The channels of images or vectors. Returns false for others.
bool concat_channels(OnnxOperator& op) {
  const std::int64_t axis = op.integer("axis", 0);
  std::vector<int> layers;
  OnnxActivation all;
  for (std::size_t i = 0; i < op.node().inputs.size(); ++i) {
    if (!op.is_activation(i)) return false;
    const OnnxActivation next = op.activation(i);
    if (i == 0) all = next;
    const bool is_special = next.layout == OnnxActivation::Layout::kImage ||
                            next.layout == OnnxActivation::Layout::kVector;
    if (!is_special || next.layout != all.layout || next.shape.size() != all.shape.size() ||
        (axis != 1 && axis != 1 - std::ssize(all.shape)))
      return false;
    Numbers rest = all.shape;
    rest[1] = next.shape[1];
    if (rest != next.shape || is_onnx_symbol(next.shape[1])) return false;
    if (i > 0 && __builtin_add_overflow(all.shape[1], next.shape[1], &all.shape[1])) return false;
    layers.push_back(next.layer);
  }
  if (layers.size() > 1) all.layer = op.add_layer("concat", layers);
  op.set(std::move(all));
  return true;
}

// Cuts the other dimensions of all parts as finely as those of any of them.
void align_parts(std::vector<OnnxActivation>& parts, std::size_t joined) {
  OnnxActivation& first = parts[0];
  for (int pass = 0; pass < 2; ++pass)
    for (std::size_t i = 1; i < parts.size(); ++i) {
      if (parts[i].plain.dims.size() != first.plain.dims.size()) refuse_parts(first, parts[i]);
      for (std::size_t d = 0; d < first.plain.dims.size(); ++d)
        if (d != joined && !refine_plain(first.plain, parts[i].plain, d))
          refuse_parts(first, parts[i]);
    }
}

// A value that is the same for all samples, [1, ...], is computed for each of them.
void give_samples(std::vector<OnnxActivation>& parts, std::size_t joined) {
  const std::vector<int> samples{kOnnxBatchAxis};
  const auto has_samples = [&](const OnnxActivation& part) {
    return !part.plain.dims.empty() && part.plain.dims[0] == samples;
  };
  if (joined == 0 || std::ranges::none_of(parts, has_samples)) return;
  for (OnnxActivation& part : parts)
    if (!part.plain.dims.empty() && part.plain.dims[0].empty()) part.plain.dims[0] = samples;
}

void translate_concat(OnnxOperator& op) {
  if (op.node().inputs.empty()) throw OnnxUnsupported("it has no inputs");
  if (concat_channels(op)) return;
  std::vector<OnnxActivation> parts;
  for (std::size_t i = 0; i < op.node().inputs.size(); ++i)
    parts.push_back(materialized(op, plain_input(op, i)));
  const std::size_t dim = dimension_of(op.integer("axis", 0), parts[0].plain.dims.size());
  give_samples(parts, dim);
  align_parts(parts, dim);
  std::size_t widest = 0;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i].plain.axes.size() > parts[widest].plain.axes.size()) widest = i;
  const Order order = order_of(parts[widest].plain, dim);
  const auto place = static_cast<std::size_t>(
      std::ranges::find(order, std::pair<std::size_t, std::size_t>{dim, 0}) - order.begin());
  std::vector<int> layers;
  std::int64_t total = 0;
  for (OnnxActivation& part : parts) {
    if (__builtin_add_overflow(total, known_extent(part, dim), &total))
      refuse_parts(parts[0], part);
    part = ordered(op, part, groups_in(part.plain, order, dim));
    layers.push_back(part.layer);
  }
  OnnxActivation value = parts[widest];
  std::vector<std::pair<std::string, std::string>> options;
  if (place + 1 != order.size()) options.emplace_back("axis", std::to_string(place));
  if (layers.size() > 1) {
    value.layer = op.add_layer("concat", layers, std::move(options));
    op.all().layers.at(value.layer).keeps_last = place + 1 != order.size();
  }
  value.plain.stored[place] = total;
  while (!value.plain.dims[dim].empty()) remove_axis(value.plain, value.plain.dims[dim][0]);
  if (total > 1) {
    insert_axis(value.plain, static_cast<int>(place), total);
    value.plain.dims[dim] = {static_cast<int>(place)};
  }
  set_plain(op, std::move(value));
}

// To more samples; zeros are added along other dimensions that repeat.
void set_expanded(OnnxOperator& op, OnnxActivation value, const Numbers& to) {
  while (value.plain.dims.size() < to.size())
    value.plain.dims.insert(value.plain.dims.begin(), std::vector<int>{});
  const std::size_t first = value.plain.dims.size() - to.size();
  Numbers repeats(to.size(), 1);
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::vector<int>& dim = value.plain.dims[first + i];
    const bool is_batch =
        to[i] == kOnnxBatch || (i == 0 && to[i] > 1 && to[i] == op.all().fixed_batch);
    if (to[i] == 1 || to[i] == -1 || to[i] == extent_of(value.plain, dim)) continue;
    if (dim.empty() && to[i] > 1 && !is_batch) {
      repeats[i] = to[i];
      continue;
    }
    if (!is_batch || (!dim.empty() && dim != std::vector<int>{kOnnxBatchAxis}))
      throw OnnxUnsupported(onnx_shape_text(value.shape) + " to " + onnx_shape_text(to) +
                            ", expected it to repeat for each sample, or dimensions of 1");
    dim = {kOnnxBatchAxis};
  }
  if (repeats != Numbers(to.size(), 1))
    value = combined(op, "add", std::move(value), tensor_value(op, zeros(op, repeats, true)));
  set_plain(op, std::move(value));
}

void translate_expand(OnnxOperator& op) { set_expanded(op, plain_input(op, 0), op.numbers(1)); }

void translate_tile(OnnxOperator& op) {
  OnnxActivation value = plain_input(op, 0);
  Numbers to = op.numbers(1);
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to.size() != value.plain.dims.size() || (to[i] != 1 && !value.plain.dims[i].empty()))
      throw OnnxUnsupported("repeats " + onnx_shape_text(to) + " of " +
                            onnx_shape_text(value.shape) + ", expected those of extents of 1");
    if (to[i] == 1) to[i] = -1;
  }
  set_expanded(op, std::move(value), to);
}

}  // namespace

std::vector<OnnxOperatorRow> onnx_movements() {
  return {{"Split", translate_split},   {"Slice", translate_slice},
          {"Gather", translate_gather}, {"GatherND", translate_gather_nd},
          {"Concat", translate_concat}, {"Expand", translate_expand},
          {"Tile", translate_tile}};
}

}  // namespace models
