// Operators that become layers without parameters, except for activation functions.
#include <algorithm>
#include <string>

#include "io/base/text/text_format.h"
#include "models/onnx_import/onnx_operator.h"
#include "models/onnx_import/onnx_products.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// The rate acts in training alone, as in the engine; an export in eval mode has no Dropout.
void translate_dropout(OnnxOperator& op) {
  const double rate = op.has_input(1) ? op.number(1) : 0.5;
  if (rate == 0) return op.set(op.activation(0));
  OnnxActivation value = op.activation(0);
  value.layer = op.add_layer("dropout", {value.layer}, {{"rate", io::shortest_text(rate)}});
  op.set(std::move(value));
}

struct PoolAttributes {
  std::int64_t window = 0, stride = 0, padding = 0;
  bool ceil_mode = false;
};

// Without windows that would begin beyond the image and its first padding, as in PyTorch.
std::int64_t windows_along(std::int64_t extent, const PoolAttributes& pool, std::int64_t end) {
  const std::int64_t rounding = pool.ceil_mode ? pool.stride - 1 : 0;
  const std::int64_t count =
      (extent + pool.padding + end - pool.window + rounding) / pool.stride + 1;
  const bool begins_beyond = (count - 1) * pool.stride >= extent + pool.padding;
  return count - (pool.ceil_mode && begins_beyond ? 1 : 0);
}

// Throws unless the window is square, and padded alike in both directions.
PoolAttributes square_window(OnnxOperator& op) {
  const Numbers window = op.integers("kernel_shape").value_or(Numbers{});
  const Numbers strides = op.integers("strides").value_or(Numbers{1, 1});
  const Numbers pads = op.integers("pads").value_or(Numbers{0, 0, 0, 0});
  if (op.text("auto_pad", "NOTSET") != "NOTSET")
    throw OnnxUnsupported("auto_pad, expected explicit pads");
  if (op.integers("dilations").value_or(Numbers{1, 1}) != Numbers{1, 1})
    throw OnnxUnsupported("dilations, expected 1");
  if (window.size() != 2 || strides.size() != 2 || pads.size() != 4 || window[0] != window[1] ||
      strides[0] != strides[1] || pads[0] != pads[1])
    throw OnnxUnsupported("kernel_shape " + onnx_shape_text(window) + ", strides " +
                          onnx_shape_text(strides) + ", pads " + onnx_shape_text(pads) +
                          ", expected a square window with equal strides and paddings");
  const PoolAttributes pool{window[0], strides[0], pads[0], op.integer("ceil_mode", 0) != 0};
  if (pool.window < 1 || pool.window > 15 || pool.stride < 1 || pool.stride > kMaxOnnxExtent ||
      pool.padding < 0 || pool.padding > pool.window / 2)
    throw OnnxUnsupported("a window of " + std::to_string(pool.window) + " with stride " +
                          std::to_string(pool.stride) + " and padding " +
                          std::to_string(pool.padding) +
                          ", expected a window of 1 to 15, padded by at most half of it");
  return pool;
}

// Returns whether the engine's windows, with the same padding at both ends, are those of the file,
// and their number in both directions.
bool windows_fit(OnnxOperator& op, const PoolAttributes& pool, bool ceil_mode, const Numbers& image,
                 Numbers& out) {
  const Numbers pads = op.integers("pads").value_or(Numbers{0, 0, 0, 0});
  PoolAttributes own = pool;
  own.ceil_mode = ceil_mode;
  out.clear();
  for (std::size_t axis = 0; axis < 2; ++axis) {
    const std::int64_t end = pads[axis + 2], extent = image[axis];
    if (extent == kOnnxUnknown) {
      if (end != pool.padding || ceil_mode != pool.ceil_mode) return false;
      out.push_back(kOnnxUnknown);
      continue;
    }
    if (end < 0 || end > pool.window || extent > kMaxOnnxExtent ||
        extent + 2 * pool.padding < pool.window)
      return false;
    out.push_back(windows_along(extent, own, pool.padding));
    if (out.back() != windows_along(extent, pool, end)) return false;
  }
  return true;
}

// The engine pads both ends alike, or with ceil_mode lets the last window end beyond the image.
PoolAttributes pool_attributes(OnnxOperator& op, const Numbers& image, Numbers& out) {
  PoolAttributes pool = square_window(op);
  for (const bool ceil_mode : {pool.ceil_mode, !pool.ceil_mode}) {
    if (!windows_fit(op, pool, ceil_mode, image, out)) continue;
    pool.ceil_mode = ceil_mode;
    return pool;
  }
  throw OnnxUnsupported("pads " +
                        onnx_shape_text(op.integers("pads").value_or(Numbers{0, 0, 0, 0})) +
                        " on an image of " + onnx_shape_text(image) +
                        ", expected equal ones at both ends and a window that fits");
}

void set_pool(OnnxOperator& op, const char* kind, const PoolAttributes& pool, OnnxActivation value,
              const Numbers& out) {
  value.layer = op.add_layer(kind, {value.layer},
                             {{"window", std::to_string(pool.window)},
                              {"stride", std::to_string(pool.stride)},
                              {"padding", std::to_string(pool.padding)},
                              {"ceil_mode", pool.ceil_mode ? "true" : "false"}});
  std::ranges::copy(out, value.shape.begin() + 2);
  op.set(std::move(value));
}

void translate_max_pool(OnnxOperator& op) {
  OnnxActivation value = op.image(0);
  Numbers out;
  const PoolAttributes pool = pool_attributes(op, {value.shape[2], value.shape[3]}, out);
  set_pool(op, "max_pool2d", pool, std::move(value), out);
}

void set_global_average(OnnxOperator& op, OnnxActivation value, bool keeps_axes) {
  if (value.layout == OnnxActivation::Layout::kImage) {
    value.layer = op.add_layer("global_average_pool", {value.layer});
    value.layout = OnnxActivation::Layout::kVector;
  }
  value.shape.resize(2);
  if (keeps_axes) value.shape.insert(value.shape.end(), {1, 1});
  op.set(std::move(value));
}

// A window over the whole image is a global average, as PyTorch exports AdaptiveAvgPool2d(1).
void translate_average_pool(OnnxOperator& op) {
  OnnxActivation value = image_or_vector(op, 0);
  const Numbers window = op.integers("kernel_shape").value_or(Numbers{}), none{0, 0, 0, 0};
  const bool is_padded = op.integers("pads").value_or(none) != none;
  if (value.shape.size() != 4)
    throw OnnxUnsupported("it reads " + onnx_shape_text(value.shape) + ", expected an image");
  if (!is_padded && window == Numbers{value.shape[2], value.shape[3]})
    return set_global_average(op, std::move(value), /*keeps_axes=*/true);
  value = op.image(0);
  if (is_padded && op.integer("count_include_pad", 0) == 0)
    throw OnnxUnsupported("pads that are not counted, expected count_include_pad=1");
  Numbers out;
  const PoolAttributes pool = pool_attributes(op, {value.shape[2], value.shape[3]}, out);
  // Other counts of the numbers in a window at the border.
  const Numbers pads = op.integers("pads").value_or(none);
  if (pads[2] != pads[0] || pads[3] != pads[1] || (is_padded && pool.ceil_mode))
    throw OnnxUnsupported("pads " + onnx_shape_text(pads) +
                          ", expected equal ones at both ends, and no ceil_mode with them");
  set_pool(op, "average_pool2d", pool, std::move(value), out);
}

void translate_global_average_pool(OnnxOperator& op) {
  OnnxActivation value = image_or_vector(op, 0);
  if (value.shape.size() != 4)
    throw OnnxUnsupported("it reads " + onnx_shape_text(value.shape) + ", expected an image");
  set_global_average(op, std::move(value), /*keeps_axes=*/true);
}

// The axes are an attribute up to operator set 17, then an input.
void translate_reduce_mean(OnnxOperator& op) {
  Numbers axes = op.has_input(1) ? op.numbers(1) : op.integers("axes").value_or(Numbers{});
  const auto rank = std::ssize(op.activation(0).shape);
  for (std::int64_t& axis : axes)
    if (axis < 0) axis += rank;
  std::ranges::sort(axes);
  if (rank != 4 || axes != Numbers{2, 3}) return translate_reduction(op, axes);
  set_global_average(op, image_or_vector(op, 0), op.integer("keepdims", 1) != 0);
}

}  // namespace

std::vector<OnnxOperatorRow> onnx_plain_operators() {
  return {{"Dropout", translate_dropout},
          {"MaxPool", translate_max_pool},
          {"AveragePool", translate_average_pool},
          {"GlobalAveragePool", translate_global_average_pool},
          {"ReduceMean", translate_reduce_mean}};
}

}  // namespace models
