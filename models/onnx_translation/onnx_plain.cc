// Follows ONNX's dimensions through changes of shape.
#include "models/onnx_translation/onnx_plain.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "io/base/text/text_parts.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;
using Layout = OnnxActivation::Layout;

int add_axis(OnnxPlain& plain, std::int64_t extent) {
  plain.axes.push_back({extent});
  return static_cast<int>(plain.axes.size()) - 1;
}

// The axes of a dimension of this extent: none for 1.
std::vector<int> new_dimension(OnnxPlain& plain, std::int64_t extent) {
  if (extent == 1) return {};
  return {add_axis(plain, extent)};
}

// [batch, c, h, w], and with the channels in two dimensions.
OnnxPlain plain_of_image(const OnnxActivation& value) {
  const Numbers& shape = value.shape;
  OnnxPlain plain;
  if (shape.size() == 2) {
    plain.stored = {1, 1, shape[1]};
    plain.dims = {{kOnnxBatchAxis}, new_dimension(plain, shape[1])};
    return plain;
  }
  const std::size_t rank = shape.size();
  const std::vector<int> rows = new_dimension(plain, shape[rank - 2]),
                         columns = new_dimension(plain, shape[rank - 1]);
  plain.dims = {{kOnnxBatchAxis}};
  std::int64_t channels = 1;
  for (std::size_t i = 1; i + 2 < rank; ++i) {
    plain.dims.push_back(new_dimension(plain, shape[i]));
    channels *= shape[i];
  }
  plain.dims.push_back(rows);
  plain.dims.push_back(columns);
  plain.stored = {shape[rank - 2], shape[rank - 1], channels};
  return plain;
}

OnnxPlain plain_of_vector(const OnnxActivation& value) {
  OnnxPlain plain;
  plain.stored = {value.shape.at(1)};
  plain.dims = {{kOnnxBatchAxis}, new_dimension(plain, value.shape[1])};
  plain.dims.resize(value.shape.size());  // pixels
  return plain;
}

// Whether these are the first axes of `plain` from `next` on, which then follows them.
bool follows(const std::vector<int>& axes, int& next) {
  for (const int axis : axes)
    if (axis != next++) return false;
  return true;
}

// An extent of a new shape: a number, perhaps times the number of samples.
struct Extent {
  std::int64_t count = 1;
  bool has_batch = false;
};

Extent extent_of_symbol(std::int64_t value) {
  const std::int64_t batches = batches_of(value);
  return batches > 0 ? Extent{batches, true} : Extent{value, false};
}

// Resolves the one extent that is free.
std::optional<std::vector<Extent>> resolved(const OnnxPlain& plain, const Numbers& to,
                                            std::int64_t fixed_batch) {
  std::int64_t total = 1, known = 1;
  bool has_batch = false, wants_batch = false;
  for (const std::vector<int>& dim : plain.dims)
    for (const int axis : dim) {
      if (axis == kOnnxBatchAxis)
        has_batch = true;
      else if (const std::int64_t extent = plain.axes[static_cast<std::size_t>(axis)].extent;
               extent < 1 || __builtin_mul_overflow(total, extent, &total))
        return std::nullopt;
    }
  std::vector<Extent> wanted;
  std::ptrdiff_t free = -1;
  for (const std::int64_t value : to) {
    wanted.push_back(extent_of_symbol(value));
    if (value == -1 || value == kOnnxUnknown) {
      if (free >= 0) return std::nullopt;
      free = std::ssize(wanted) - 1;
      continue;
    }
    if (wanted.back().count < 1 || __builtin_mul_overflow(known, wanted.back().count, &known))
      return std::nullopt;
    wants_batch = wants_batch || wanted.back().has_batch;
  }
  if (free < 0) return wanted;
  Extent& last = wanted[static_cast<std::size_t>(free)];
  last = {total / known, has_batch && !wants_batch};
  if (total % known == 0) return wanted;
  if (fixed_batch < 1 || !last.has_batch || __builtin_mul_overflow(total, fixed_batch, &total) ||
      total % known != 0)
    return std::nullopt;
  last = {total / known, false};
  return wanted;
}

}  // namespace

std::size_t dimension_of(std::int64_t axis, std::size_t rank) {
  const auto count = static_cast<std::int64_t>(rank);
  if (axis < -count || axis >= count)
    throw OnnxUnsupported("axis " + std::to_string(axis) + " of " + std::to_string(rank) +
                          " dimensions");
  return static_cast<std::size_t>(axis < 0 ? axis + count : axis);
}

std::int64_t extent_of(const OnnxPlain& plain, const std::vector<int>& axes) {
  std::int64_t extent = 1;
  bool has_batch = false;
  for (const int axis : axes) {
    if (axis == kOnnxBatchAxis)
      has_batch = true;
    else if (const std::int64_t own = plain.axes.at(static_cast<std::size_t>(axis)).extent;
             own == kOnnxUnknown || __builtin_mul_overflow(extent, own, &extent))
      return axes.size() == 1 ? own : kOnnxUnknown;
  }
  if (!has_batch) return extent;
  return extent <= kMaxOnnxExtent ? kOnnxUnknown + extent : kOnnxUnknown;
}

Numbers shape_of(const OnnxPlain& plain) {
  Numbers shape;
  for (const std::vector<int>& dim : plain.dims) shape.push_back(extent_of(plain, dim));
  return shape;
}

OnnxGroups stored_groups(const OnnxPlain& plain) {
  OnnxGroups groups;
  int next = 0;
  for (const std::int64_t extent : plain.stored) {
    groups.emplace_back();
    while (extent != 1 && extent_of(plain, groups.back()) != extent)
      groups.back().push_back(next++);
  }
  return groups;
}

OnnxActivation as_plain(const OnnxActivation& value) {
  if (value.layout == Layout::kPlain) return value;
  OnnxActivation all = value;
  all.layout = Layout::kPlain;
  all.plain = value.layout == Layout::kVector ? plain_of_vector(value) : plain_of_image(value);
  return all;
}

OnnxActivation as_special(OnnxActivation value) {
  const OnnxPlain& plain = value.plain;
  const auto& dims = plain.dims;
  value.shape = shape_of(plain);
  if (plain.scale != 1 || dims.size() < 2 || dims[0] != std::vector<int>{kOnnxBatchAxis})
    return value;
  for (const OnnxPlain::Axis& axis : plain.axes)
    if (axis.entry >= 0) return value;
  int next = 0;
  const bool is_column = dims.size() == 4 && dims[2].empty() && dims[3].empty();
  if (plain.stored.size() == 1 && (dims.size() == 2 || is_column) && follows(dims[1], next)) {
    value.layout = Layout::kVector;
    return value;
  }
  next = 0;
  if (plain.stored.size() == 3 && dims.size() == 4 && follows(dims[2], next) &&
      follows(dims[3], next) && follows(dims[1], next) &&
      plain.stored == Numbers{value.shape[2], value.shape[3], value.shape[1]})
    value.layout = Layout::kImage;
  return value;
}

int split_axis(OnnxPlain& plain, int axis, std::int64_t first) {
  OnnxPlain::Axis& whole = plain.axes.at(static_cast<std::size_t>(axis));
  const OnnxPlain::Axis rest{whole.extent / first};
  whole.extent = first;
  plain.axes.insert(plain.axes.begin() + axis + 1, rest);
  for (std::vector<int>& dim : plain.dims) {
    for (int& other : dim)
      if (other > axis) ++other;
    const auto at = std::ranges::find(dim, axis);
    if (at != dim.end()) dim.insert(at + 1, axis + 1);
  }
  return axis;
}

bool reshape_plain(OnnxPlain& plain, const Numbers& to, std::int64_t fixed_batch) {
  const auto wanted = resolved(plain, to, fixed_batch);
  if (!wanted) return false;
  OnnxPlain all = plain;
  all.dims = {{}};  // all axes as one dimension, while they are cut
  for (const std::vector<int>& dim : plain.dims)
    all.dims[0].insert(all.dims[0].end(), dim.begin(), dim.end());
  std::size_t at = 0;
  std::vector<std::size_t> ends;
  for (Extent rest : *wanted) {
    while (rest.count > 1 || rest.has_batch) {
      if (at == all.dims[0].size()) return false;
      const int axis = all.dims[0][at];
      if (axis == kOnnxBatchAxis) {
        if (!rest.has_batch && (fixed_batch < 1 || rest.count % fixed_batch != 0)) return false;
        if (!rest.has_batch) rest.count /= fixed_batch;
        rest.has_batch = false;
      } else {
        const std::int64_t extent = all.axes[static_cast<std::size_t>(axis)].extent;
        if (rest.count % extent != 0 && extent % rest.count != 0) return false;
        if (rest.count % extent != 0) {
          if (rest.count == 1) return false;
          split_axis(all, axis, rest.count);
          rest.count = 1;
        } else {
          rest.count /= extent;
        }
      }
      ++at;
    }
    ends.push_back(at);
  }
  if (at != all.dims[0].size()) return false;
  const std::vector<int> axes = all.dims[0];
  all.dims.clear();
  std::size_t first = 0;
  for (const std::size_t end : ends) {
    all.dims.emplace_back(axes.begin() + static_cast<std::ptrdiff_t>(first),
                          axes.begin() + static_cast<std::ptrdiff_t>(end));
    first = end;
  }
  plain = std::move(all);
  return true;
}

bool refine_plain(OnnxPlain& a, OnnxPlain& b, std::size_t dim) {
  for (std::size_t i = 0; i < std::max(a.dims[dim].size(), b.dims[dim].size()); ++i) {
    if (i >= a.dims[dim].size() || i >= b.dims[dim].size()) return false;
    const int x = a.dims[dim][i], y = b.dims[dim][i];
    if (x == kOnnxBatchAxis || y == kOnnxBatchAxis) {
      if (x != y) return false;
      continue;
    }
    const std::int64_t s = a.axes[static_cast<std::size_t>(x)].extent,
                       t = b.axes[static_cast<std::size_t>(y)].extent;
    if (s == t) continue;
    if (s < 1 || t < 1 || (s % t != 0 && t % s != 0)) return false;
    if (s > t)
      split_axis(a, x, t);
    else
      split_axis(b, y, s);
  }
  return true;
}

bool has_same_places(OnnxPlain a, OnnxPlain b) {
  if (a.dims.size() != b.dims.size()) return false;
  for (std::size_t dim = 0; dim < a.dims.size(); ++dim)
    if (!refine_plain(a, b, dim)) return false;
  return a.dims == b.dims && a.axes == b.axes;
}

bool is_whole_output(const OnnxPlain& plain) {
  int next = 0;
  for (const std::vector<int>& dim : plain.dims)
    for (const int axis : dim)
      if (axis != kOnnxBatchAxis && axis != next++) return false;
  return plain.scale == 1 && next == static_cast<int>(plain.axes.size());
}

void remove_axis(OnnxPlain& plain, int axis) {
  plain.axes.erase(plain.axes.begin() + axis);
  for (std::vector<int>& dim : plain.dims) {
    std::erase(dim, axis);
    for (int& other : dim)
      if (other > axis) --other;
  }
}

void insert_axis(OnnxPlain& plain, int axis, std::int64_t extent) {
  plain.axes.insert(plain.axes.begin() + axis, OnnxPlain::Axis{extent});
  for (std::vector<int>& dim : plain.dims)
    for (int& other : dim)
      if (other >= axis) ++other;
}

void replace_last(OnnxPlain& plain, std::size_t dim, std::int64_t extent) {
  plain.stored.back() = extent;
  plain.axes.resize(plain.axes.size() - plain.dims.at(dim).size());
  plain.dims[dim] = new_dimension(plain, extent);
}

}  // namespace models
