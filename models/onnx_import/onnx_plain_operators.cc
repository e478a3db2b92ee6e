// Operators that become layers without parameters, except for activation functions.
#include <algorithm>
#include <string>

#include "io/base/text/text_format.h"
#include "models/onnx_import/onnx_plain.h"
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

// Whether places of the output are those of the layer, for the factor of each axis.
bool has_known_places(OnnxOperator& op, bool linear, const std::vector<double>& factors,
                      const Numbers& out) {
  const std::string mode = op.text("coordinate_transformation_mode", "half_pixel"),
                    rounding = op.text("nearest_mode", "round_prefer_floor");
  if (linear) {
    // PyTorch's variant differs for an output of one pixel.
    const bool is_one = out[0] == 1 || out[1] == 1;
    return mode == "half_pixel" || (mode == "pytorch_half_pixel" && !is_one);
  }
  if (mode == "asymmetric") return rounding == "floor";
  // Equal for whole factors.
  return mode == "half_pixel" && rounding.starts_with("round_prefer") &&
         std::ranges::all_of(factors, [](double f) {
           return f >= 1 && f == static_cast<double>(static_cast<std::int64_t>(f));
         });
}

std::string both(const std::string& height, const std::string& width) {
  return height == width ? height : "[" + height + ", " + width + "]";
}

// [height, width] of the sizes or factors of [batch, c, height, width].
template <class Number>
std::vector<Number> of_image(const std::vector<Number>& all, bool keeps_others) {
  if (all.size() != 4 || !keeps_others)
    throw OnnxUnsupported("expected another height and width alone, of 4 dimensions");
  return {all[2], all[3]};
}

struct Resizing {
  std::vector<double> factors;  // of height and width
  Numbers out;                  // kOnnxUnknown: unknown
  std::pair<std::string, std::string> option;
};

Resizing by_sizes(OnnxOperator& op, const Numbers& shape) {
  const Numbers sizes = op.numbers(3);
  const std::int64_t fixed_batch = op.all().fixed_batch;
  const bool keeps_samples =
      !sizes.empty() && (sizes[0] == kOnnxBatch || (fixed_batch > 0 && sizes[0] == fixed_batch));
  const Numbers out = of_image(sizes, keeps_samples && sizes.size() == 4 && sizes[1] == shape[1]);
  for (const std::int64_t extent : out)
    if (extent < 1 || extent > kMaxOnnxExtent)
      throw OnnxUnsupported("sizes " + onnx_shape_text(sizes) + ", expected known ones");
  std::vector<double> factors;
  for (std::size_t axis = 0; axis < 2; ++axis)
    factors.push_back(static_cast<double>(out[axis]) /
                      static_cast<double>(std::max<std::int64_t>(1, shape[axis + 2])));
  return {factors, out, {"size", both(std::to_string(out[0]), std::to_string(out[1]))}};
}

Resizing by_scales(OnnxOperator& op, const Numbers& shape) {
  const std::vector<double> scales = op.tensor(2).reals;
  const std::vector<double> factors =
      of_image(scales, scales.size() == 4 && scales[0] == 1 && scales[1] == 1);
  Numbers out;
  std::vector<std::string> texts;
  for (std::size_t axis = 0; axis < 2; ++axis) {
    const double factor = shortest_decimal(static_cast<float>(factors[axis]));
    if (!(factor > 0 && factor <= 1024))
      throw OnnxUnsupported("a scale of " + io::shortest_text(factor) +
                            ", expected one above 0 and at most 1024");
    const std::int64_t in = shape[axis + 2];
    if (in != kOnnxUnknown && in > kMaxOnnxExtent / 1024)
      throw OnnxUnsupported("an image of " + std::to_string(in) + " to be resized");
    out.push_back(in == kOnnxUnknown ? in
                                     : static_cast<std::int64_t>(static_cast<double>(in) * factor));
    texts.push_back(io::shortest_text(factor));
  }
  return {factors, out, {"factor", both(texts[0], texts[1])}};
}

void translate_resize(OnnxOperator& op) {
  OnnxActivation value = op.image(0);
  const std::string mode = op.text("mode", "nearest");
  const bool linear = mode == "linear";
  if (!linear && mode != "nearest")
    throw OnnxUnsupported("mode '" + mode + "', expected nearest or linear");
  if (op.integer("antialias", 0) != 0 || op.attribute("axes") != nullptr)
    throw OnnxUnsupported("antialias or axes, expected neither");
  const Resizing to = op.has_input(3) ? by_sizes(op, value.shape) : by_scales(op, value.shape);
  if (!has_known_places(op, linear, to.factors, to.out))
    throw OnnxUnsupported("places '" + op.text("coordinate_transformation_mode", "half_pixel") +
                          "', expected PyTorch's: half_pixel for linear, asymmetric with floor "
                          "for nearest");
  value.layer = op.add_layer("resize", {value.layer},
                             {{"mode", linear ? "\"bilinear\"" : "\"nearest\""}, to.option});
  std::ranges::copy(to.out, value.shape.begin() + 2);
  op.set(std::move(value));
}

// Adds what two pads add to an extent.
void add_pads(std::int64_t& extent, std::int64_t before, std::int64_t after) {
  if (extent == kOnnxUnknown) return;
  if (__builtin_add_overflow(extent, before, &extent) ||
      __builtin_add_overflow(extent, after, &extent) || extent > kMaxOnnxExtent)
    throw OnnxUnsupported("an image of " + std::to_string(extent));
}

// Channels are padded by zeros, as in shortcuts without parameters.
void translate_pad(OnnxOperator& op) {
  const Numbers pads = op.numbers(1);
  if (pads == Numbers(2 * op.activation(0).shape.size(), 0)) return op.set(op.activation(0));
  OnnxActivation value = op.image(0);
  const double constant = op.has_input(2) ? op.number(2) : 0;
  const bool is_sound =
      op.text("mode", "constant") == "constant" && !op.has_input(3) && pads.size() == 8 &&
      pads[0] == 0 && pads[4] == 0 &&
      std::ranges::all_of(pads, [](std::int64_t pad) { return pad >= 0 && pad <= kMaxOnnxExtent; });
  if (!is_sound || ((pads[1] != 0 || pads[5] != 0) && constant != 0))
    throw OnnxUnsupported("pads " + onnx_shape_text(pads) +
                          ", expected a constant around the image, or zeros before and after the "
                          "channels");
  if (pads[1] + pads[5] > 0)
    value.layer =
        op.add_layer("pad_channels", {value.layer},
                     {{"before", std::to_string(pads[1])}, {"after", std::to_string(pads[5])}});
  const Numbers sides{pads[2], pads[3], pads[6], pads[7]};
  if (sides != Numbers(4, 0))
    value.layer =
        op.add_layer("pad", {value.layer},
                     {{"padding", list_text(sides)}, {"value", io::shortest_text(constant)}});
  for (std::size_t dim = 1; dim < 4; ++dim) add_pads(value.shape[dim], pads[dim], pads[dim + 4]);
  op.set(std::move(value));
}

}  // namespace

std::vector<OnnxOperatorRow> onnx_plain_operators() {
  return {{"Dropout", translate_dropout},
          {"MaxPool", translate_max_pool},
          {"AveragePool", translate_average_pool},
          {"GlobalAveragePool", translate_global_average_pool},
          {"ReduceMean", translate_reduce_mean},
          {"Resize", translate_resize},
          {"Pad", translate_pad}};
}

}  // namespace models
