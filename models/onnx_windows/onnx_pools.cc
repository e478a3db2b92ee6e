// Pools: layers of square windows; others are sums or maxima of entries of columns, then of rows.
#include <algorithm>
#include <optional>
#include <string>

#include "models/onnx_translation/onnx_combined.h"
#include "models/onnx_translation/onnx_tensors.h"
#include "models/onnx_windows/onnx_window_operators.h"
#include "models/onnx_windows/onnx_windows.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

struct Pool : OnnxWindows {
  bool ceil_mode = false;

  bool has_equal_pads() const { return pads[0] == pads[2] && pads[1] == pads[3]; }
  bool is_padded() const { return pads != Numbers(4, 0); }
};

Pool pool_attributes(OnnxOperator& op, const OnnxActivation& value, bool is_row) {
  Pool pool{window_attributes(op, {}, is_row), op.integer("ceil_mode", 0) != 0};
  set_same_pads(op, {value.shape[2], value.shape[3]}, pool);
  return pool;
}

// Without windows that would begin beyond the image and its first padding, as in PyTorch.
std::int64_t windows_along(std::int64_t extent, const Pool& pool, std::size_t axis) {
  const std::int64_t stride = pool.strides[axis], rounding = pool.ceil_mode ? stride - 1 : 0,
                     before = pool.pads[axis],
                     room = extent + before + pool.pads[axis + 2] - pool.reach(axis);
  if (room < 0 && (!pool.ceil_mode || room + rounding < 0))
    throw OnnxUnsupported("a window of " + std::to_string(pool.reach(axis)) + " on an image of " +
                          std::to_string(extent));
  const std::int64_t count = (room + rounding) / stride + 1;
  return count - (pool.ceil_mode && (count - 1) * stride >= extent + before ? 1 : 0);
}

// Whether the layers have such windows, apart from their ends.
bool is_square(const Pool& pool) {
  const std::int64_t window = pool.kernel[0];
  return pool.kernel[1] == window && pool.strides[0] == pool.strides[1] &&
         pool.pads[0] == pool.pads[1] && pool.dilations == Numbers{1, 1} && window <= 15 &&
         pool.pads[0] <= window / 2;
}

// The pool of the engine that has the same windows: it pads both ends alike, or with ceil_mode
// lets the last window end beyond the image. Sets their number in both directions.
std::optional<Pool> engine_pool(const Pool& pool, const Numbers& image, Numbers& out) {
  if (!is_square(pool)) return std::nullopt;
  for (const bool ceil_mode : {pool.ceil_mode, !pool.ceil_mode}) {
    Pool own = pool;
    own.ceil_mode = ceil_mode;
    own.pads = Numbers(4, pool.pads[0]);
    bool fits = true;
    out.clear();
    for (std::size_t axis = 0; fits && axis < 2; ++axis) {
      if (image[axis] == kOnnxUnknown) {
        fits = own.pads == pool.pads && ceil_mode == pool.ceil_mode;
        out.push_back(kOnnxUnknown);
        continue;
      }
      fits = pool.pads[axis + 2] <= pool.kernel[axis] && image[axis] <= kMaxOnnxExtent &&
             image[axis] + 2 * pool.pads[0] >= pool.kernel[axis];
      if (!fits) break;
      out.push_back(windows_along(image[axis], own, axis));
      fits = out.back() == windows_along(image[axis], pool, axis);
    }
    if (fits) return own;
  }
  return std::nullopt;
}

OnnxActivation with_layer(OnnxOperator& op, const char* kind, const Pool& pool,
                          OnnxActivation value, const Numbers& out) {
  value.layer = op.add_layer(kind, {value.layer},
                             {{"window", std::to_string(pool.kernel[0])},
                              {"stride", std::to_string(pool.strides[0])},
                              {"padding", std::to_string(pool.pads[0])},
                              {"ceil_mode", bool_text(pool.ceil_mode)}});
  std::ranges::copy(out, value.shape.begin() + 2);
  return value;
}

std::int64_t known_extent(const OnnxActivation& value, std::size_t axis) {
  const std::int64_t extent = value.shape[axis + 2];
  if (extent == kOnnxUnknown)
    throw OnnxUnsupported("such windows on " + onnx_shape_text(value.shape) +
                          ", expected known extents, or square windows up to 15 with equal strides "
                          "and pads");
  expect_onnx_extent(extent);
  return extent;
}

// The number of places of a window that count: in the image, or also in its pads.
std::int64_t counted_places(const Pool& pool, std::size_t axis, std::int64_t extent,
                            std::int64_t window, bool counts_pads) {
  const std::int64_t first = window * pool.strides[axis] - pool.pads[axis];
  std::int64_t count = 0;
  for (std::int64_t tap = 0; tap < pool.kernel[axis]; ++tap) {
    const std::int64_t at = first + tap * pool.dilations[axis],
                       begin = counts_pads ? -pool.pads[axis] : 0,
                       end = extent + (counts_pads ? pool.pads[axis + 2] : 0);
    count += at >= begin && at < end ? 1 : 0;
  }
  return count;
}

// The entries of each window. A place outside the image is replaced by the nearest one of the
// window, which a maximum may read twice; an average weighs it by 0.
OnnxEntries pool_entries(const Pool& pool, std::size_t axis, std::int64_t extent, bool averages,
                         bool counts_pads) {
  OnnxEntries along{.entries = {}, .taps = pool.kernel[axis]};
  const std::int64_t out = windows_along(extent, pool, axis), step = pool.dilations[axis];
  if (along.taps > (1 << 16) / std::max<std::int64_t>(1, out))
    throw OnnxUnsupported(std::to_string(out) + " windows of " + std::to_string(along.taps));
  for (std::int64_t window = 0; window < out; ++window) {
    const std::int64_t start = window * pool.strides[axis] - pool.pads[axis],
                       first = start < 0 ? (-start + step - 1) / step : 0,
                       last = (extent - 1 - start) / step;
    if (first >= along.taps || last < first)
      throw OnnxUnsupported("a window without a pixel of the image");
    const auto count = static_cast<double>(counted_places(pool, axis, extent, window, counts_pads));
    for (std::int64_t tap = 0; tap < along.taps; ++tap) {
      along.entries.push_back(start + std::clamp(tap, first, last) * step);
      if (averages) along.weights.push_back(tap < first || tap > last ? 0 : 1 / count);
    }
  }
  return along;
}

// Columns first: then the gradient of a maximum goes to the first one by rows, as in PyTorch.
OnnxActivation with_windows(OnnxOperator& op, OnnxActivation value, const Pool& pool, bool averages,
                            bool counts_pads) {
  for (const std::size_t axis : {1U, 0U}) {
    const bool is_whole = pool.kernel[axis] == 1 && pool.strides[axis] == 1 &&
                          pool.pads[axis] == 0 && pool.pads[axis + 2] == 0;
    if (is_whole) continue;
    const std::int64_t extent = known_extent(value, axis);
    value = with_entries(op, std::move(value), axis,
                         pool_entries(pool, axis, extent, averages, counts_pads));
  }
  return value;
}

void translate_max_pool(OnnxOperator& op) {
  const OnnxWindowInput from = window_input(op);
  if (!from.is_row && !from.is_shared) op.image(0);
  const Pool pool = pool_attributes(op, from.value, from.is_row);
  Numbers out;
  const auto own = engine_pool(pool, {from.value.shape[2], from.value.shape[3]}, out);
  set_windows(op, from,
              own ? with_layer(op, "max_pool2d", *own, from.value, out)
                  : with_windows(op, from.value, pool, false, false));
}

// The factors that divide averages by the pixels of the image alone.
std::vector<double> uncounted_pads(OnnxOperator& op, const Pool& pool, const Numbers& image,
                                   const Numbers& out) {
  std::vector<double> factors = zeros(op, {out[0], out[1]}, true).reals;
  factors.clear();
  for (std::int64_t row = 0; row < out[0]; ++row)
    for (std::int64_t column = 0; column < out[1]; ++column)
      factors.push_back(static_cast<double>(pool.kernel[0] * pool.kernel[1]) /
                        static_cast<double>(counted_places(pool, 0, image[0], row, false) *
                                            counted_places(pool, 1, image[1], column, false)));
  return factors;
}

// A window over the whole image is a global average, as PyTorch exports AdaptiveAvgPool2d(1).
void translate_average_pool(OnnxOperator& op) {
  const OnnxWindowInput from = window_input(op);
  OnnxActivation value = from.value;
  if (value.shape.size() != 4)
    throw OnnxUnsupported("it reads " + onnx_shape_text(value.shape) + ", expected an image");
  const Numbers image{value.shape[2], value.shape[3]};
  const Pool pool = pool_attributes(op, value, from.is_row);
  if (!pool.is_padded() && pool.kernel == image)
    return set_windows(op, from, global_average(op, std::move(value), /*keeps_axes=*/true));
  if (!from.is_row && !from.is_shared) value = op.image(0);
  const bool counts_pads = op.integer("count_include_pad", 0) != 0;
  Numbers out;
  const auto own = engine_pool(pool, image, out);
  // Other counts of the numbers in a window at the border.
  if (!own || !pool.has_equal_pads() || (pool.is_padded() && own->ceil_mode))
    return set_windows(op, from, with_windows(op, std::move(value), pool, true, counts_pads));
  value = with_layer(op, "average_pool2d", *own, std::move(value), out);
  if (pool.is_padded() && !counts_pads) {
    for (const std::size_t axis : {0U, 1U}) known_extent(from.value, axis);
    value = scaled_pixels(op, std::move(value), uncounted_pads(op, pool, image, out));
  }
  set_windows(op, from, std::move(value));
}

void translate_global_average_pool(OnnxOperator& op) {
  const Numbers shape = op.activation(0).shape;
  if (shape.size() == 4 && batches_of(shape[0]) > 1) return translate_reduction(op, {2, 3});
  if (shape.size() == 3) return translate_reduction(op, {2});
  OnnxActivation value = image_or_vector(op, 0);
  if (value.shape.size() != 4)
    throw OnnxUnsupported("it reads " + onnx_shape_text(value.shape) + ", expected an image");
  op.set(global_average(op, std::move(value), /*keeps_axes=*/true));
}

void translate_global_max_pool(OnnxOperator& op) {
  Numbers axes;
  for (std::int64_t axis = 2; axis < std::ssize(op.activation(0).shape); ++axis)
    axes.push_back(axis);
  translate_reduction(op, axes);
}

}  // namespace

std::vector<OnnxOperatorRow> onnx_pools() {
  return {{"MaxPool", translate_max_pool},
          {"AveragePool", translate_average_pool},
          {"GlobalAveragePool", translate_global_average_pool},
          {"GlobalMaxPool", translate_global_max_pool}};
}

}  // namespace models
