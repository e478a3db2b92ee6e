// Convolutions and transposed convolutions.
#include <algorithm>
#include <string>

#include "models/onnx_import/onnx_plain.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// The attributes of a convolution: of height and width, and pads at the top, left, bottom and
// right.
struct ConvAttributes {
  Numbers kernel, strides, pads, dilations;
  std::int64_t groups = 1;

  bool is_one_pixel() const { return kernel == Numbers{1, 1} && pads == Numbers(4, 0); }
};

// Throws unless there are `count` numbers from `least` on.
void expect_numbers(const char* name, const Numbers& values, std::size_t count,
                    std::int64_t least) {
  const bool fits = values.size() == count && std::ranges::all_of(values, [&](std::int64_t value) {
                      return value >= least && value <= kMaxOnnxExtent;
                    });
  if (!fits)
    throw OnnxUnsupported(std::string(name) + " " + onnx_shape_text(values) + ", expected " +
                          std::to_string(count) + " numbers from " + std::to_string(least));
}

// `outer`: what the weight's first dimension is.
ConvAttributes conv_attributes(OnnxOperator& op, const Numbers& weight, const char* outer) {
  const ConvAttributes conv{op.integers("kernel_shape").value_or(Numbers{weight[2], weight[3]}),
                            op.integers("strides").value_or(Numbers{1, 1}),
                            op.integers("pads").value_or(Numbers{0, 0, 0, 0}),
                            op.integers("dilations").value_or(Numbers{1, 1}),
                            op.integer("group", 1)};
  if (conv.groups < 1 || conv.groups > weight[0] || weight[0] % conv.groups != 0)
    throw OnnxUnsupported("group " + std::to_string(conv.groups) + " with " +
                          std::to_string(weight[0]) + outer + ", expected groups of equal size");
  if (op.text("auto_pad", "NOTSET") != "NOTSET")
    throw OnnxUnsupported("auto_pad, expected explicit pads");
  if (conv.kernel != Numbers{weight[2], weight[3]})
    throw OnnxUnsupported("a kernel of " + onnx_shape_text(conv.kernel) + " and a weight of " +
                          onnx_shape_text(weight) + ", expected equal ones");
  expect_numbers("kernel_shape", conv.kernel, 2, 1);
  expect_numbers("strides", conv.strides, 2, 1);
  expect_numbers("dilations", conv.dilations, 2, 1);
  expect_numbers("pads", conv.pads, 4, 0);
  return conv;
}

// Equal numbers as one.
std::string number_or_list(const Numbers& values) {
  return values == Numbers(values.size(), values[0]) ? std::to_string(values[0])
                                                     : list_text(values);
}

// The layer without its arrays.
OnnxListedLayer conv_layer(OnnxOperator& op, const char* kind, int input, std::int64_t out,
                           const ConvAttributes& conv) {
  OnnxListedLayer layer{.kind = kind,
                        .name = {},
                        .tied = {},
                        .inputs = {input},
                        .options = {{"out_channels", std::to_string(out)},
                                    {"kernel", number_or_list(conv.kernel)},
                                    {"stride", number_or_list(conv.strides)},
                                    {"padding", number_or_list(conv.pads)},
                                    {"bias", bool_text(op.has_input(2))}},
                        .arrays = {}};
  if (conv.dilations != Numbers{1, 1})
    layer.options.emplace_back("dilation", number_or_list(conv.dilations));
  if (conv.groups != 1) layer.options.emplace_back("groups", std::to_string(conv.groups));
  return layer;
}

void note_folded_norm(OnnxOperator& op, const OnnxConstant& weight, const OnnxConstant& bias) {
  const std::string &name = initializer_name(weight), &bias_name = initializer_name(bias);
  if (name.starts_with("onnx::Conv_") || bias_name == name + "_bias") ++op.all().folded_norms;
}

std::vector<OnnxLayerArray> weight_and_bias(OnnxOperator& op, const OnnxConstant& weight,
                                            const Numbers& shape, std::int64_t out) {
  std::vector<OnnxLayerArray> arrays{{"weight", weight, shape}};
  if (op.has_input(2)) arrays.push_back({"bias", op.constant(2, {out}), {out}});
  return arrays;
}

// A convolution of one pixel is a dense layer: as in squeeze and excitation.
void translate_pixel_conv(OnnxOperator& op, OnnxActivation value, const OnnxConstant& weight,
                          const Numbers& shape) {
  value.layer = add_weighted(
      op, {.kind = "dense",
           .name = {},
           .tied = {},
           .inputs = {value.layer},
           .options = {{"out", std::to_string(shape[0])}, {"bias", bool_text(op.has_input(2))}},
           .arrays = weight_and_bias(op, weight, {shape[0], shape[1]}, shape[0])});
  value.shape[1] = shape[0];
  op.set(std::move(value));
}

// The number of places that a window reaches over along an axis: at most 2^60.
std::int64_t reach_of(const ConvAttributes& conv, std::size_t axis) {
  return conv.dilations[axis] * (conv.kernel[axis] - 1) + 1;
}

void expect_extent(std::int64_t extent) {
  if (extent > kMaxOnnxExtent)
    throw OnnxUnsupported("an image of " + std::to_string(extent) + ", expected at most " +
                          std::to_string(kMaxOnnxExtent));
}

std::int64_t positions_along(std::int64_t extent, const ConvAttributes& conv, std::size_t axis) {
  if (extent == kOnnxUnknown) return extent;
  expect_extent(extent);
  const std::int64_t padded = extent + conv.pads[axis] + conv.pads[axis + 2],
                     reach = reach_of(conv, axis);
  if (padded < reach)
    throw OnnxUnsupported("a window of " + std::to_string(reach) + " on an image of " +
                          std::to_string(extent));
  return (padded - reach) / conv.strides[axis] + 1;
}

// Throws unless the value is an image and the weight has 4 dimensions.
void expect_image_and_weight(const OnnxActivation& value, const Numbers& weight) {
  if (weight.size() != 4 || value.shape.size() != 4)
    throw OnnxUnsupported("it reads " + onnx_shape_text(value.shape) + " with a weight of " +
                          onnx_shape_text(weight) + ", expected images and 4 dimensions");
}

void translate_conv(OnnxOperator& op) {
  OnnxActivation value = image_or_vector(op, 0);
  const OnnxConstant weight = op.constant(1);
  const Numbers shape = shape_of(weight);
  expect_image_and_weight(value, shape);
  const ConvAttributes conv = conv_attributes(op, shape, " outputs");
  std::int64_t channels = 0;
  if (__builtin_mul_overflow(shape[1], conv.groups, &channels) || channels != value.shape[1])
    throw OnnxUnsupported("it reads " + onnx_shape_text(value.shape) + ", its weight is " +
                          onnx_shape_text(shape) + " for each of " + std::to_string(conv.groups) +
                          " groups: the channels differ");
  if (op.has_input(2)) note_folded_norm(op, weight, op.constant(2));
  if (value.layout == OnnxActivation::Layout::kVector) {
    if (!conv.is_one_pixel() || conv.groups != 1)
      throw OnnxUnsupported("a kernel of " + onnx_shape_text(conv.kernel) + " and " +
                            std::to_string(conv.groups) +
                            " groups on one pixel, expected 1 of each without padding");
    return translate_pixel_conv(op, std::move(value), weight, shape);
  }
  OnnxListedLayer layer = conv_layer(op, "conv2d", value.layer, shape[0], conv);
  layer.arrays = weight_and_bias(op, weight, shape, shape[0]);
  value.layer = add_weighted(op, std::move(layer));
  value.shape = {kOnnxBatch, shape[0], positions_along(value.shape[2], conv, 0),
                 positions_along(value.shape[3], conv, 1)};
  op.set(std::move(value));
}

// Its weight is [c, outputs / groups, height, width].
void translate_conv_transpose(OnnxOperator& op) {
  OnnxActivation value = op.image(0);
  const OnnxConstant weight = op.constant(1);
  const Numbers shape = shape_of(weight);
  expect_image_and_weight(value, shape);
  const ConvAttributes conv = conv_attributes(op, shape, " inputs");
  const Numbers more = op.integers("output_padding").value_or(Numbers{0, 0});
  expect_numbers("output_padding", more, 2, 0);
  if (op.integers("output_shape")) throw OnnxUnsupported("output_shape, expected explicit pads");
  std::int64_t out = 0;
  if (shape[0] != value.shape[1] || shape[1] < 1 ||
      __builtin_mul_overflow(shape[1], conv.groups, &out) || out > kMaxOnnxExtent)
    throw OnnxUnsupported("it reads " + onnx_shape_text(value.shape) + ", its weight is " +
                          onnx_shape_text(shape) + " in " + std::to_string(conv.groups) +
                          " groups: the channels differ");
  OnnxListedLayer layer = conv_layer(op, "conv_transpose", value.layer, out, conv);
  if (more != Numbers{0, 0}) layer.options.emplace_back("output_padding", number_or_list(more));
  layer.arrays = weight_and_bias(op, weight, shape, out);
  value.layer = add_weighted(op, std::move(layer));
  const auto extent = [&](std::size_t axis) {
    const std::int64_t from = value.shape[axis + 2];
    if (from == kOnnxUnknown) return from;
    expect_extent(from);
    const std::int64_t to = (from - 1) * conv.strides[axis] + reach_of(conv, axis) + more[axis] -
                            conv.pads[axis] - conv.pads[axis + 2];
    if (to < 1 || to > kMaxOnnxExtent)
      throw OnnxUnsupported("an output of " + std::to_string(to) + " pixels along an axis");
    return to;
  };
  value.shape = {kOnnxBatch, out, extent(0), extent(1)};
  op.set(std::move(value));
}

}  // namespace

std::vector<OnnxOperatorRow> onnx_convolutions() {
  return {{"Conv", translate_conv}, {"ConvTranspose", translate_conv_transpose}};
}

}  // namespace models
