// Convolutions and transposed convolutions.
#include <algorithm>
#include <string>

#include "models/onnx_parameters/onnx_sharing.h"
#include "models/onnx_translation/onnx_plain.h"
#include "models/onnx_windows/onnx_window_operators.h"
#include "models/onnx_windows/onnx_windows.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

struct ConvAttributes : OnnxWindows {
  std::int64_t groups = 1;

  bool is_one_pixel() const { return kernel == Numbers{1, 1} && pads == Numbers(4, 0); }
};

// `outer`: what the weight's first dimension is.
ConvAttributes conv_attributes(OnnxOperator& op, const Numbers& weight, const char* outer,
                               bool is_row) {
  ConvAttributes conv{window_attributes(op, {weight[2], weight[3]}, is_row),
                      op.integer("group", 1)};
  if (conv.groups < 1 || conv.groups > weight[0] || weight[0] % conv.groups != 0)
    throw OnnxUnsupported("group " + std::to_string(conv.groups) + " with " +
                          std::to_string(weight[0]) + outer + ", expected groups of equal size");
  if (conv.kernel != Numbers{weight[2], weight[3]})
    throw OnnxUnsupported("a kernel of " + onnx_shape_text(conv.kernel) + " and a weight of " +
                          onnx_shape_text(weight) + ", expected equal ones");
  return conv;
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
                                    {"bias", bool_text(has_own_bias(op))}},
                        .arrays = {}};
  if (conv.dilations != Numbers{1, 1})
    layer.options.emplace_back("dilation", number_or_list(conv.dilations));
  if (conv.groups != 1) layer.options.emplace_back("groups", std::to_string(conv.groups));
  return layer;
}

void note_folded_norm(OnnxOperator& op, const OnnxConstant& weight, const OnnxConstant& bias) {
  const std::string &name = initializer_name(weight), &bias_name = initializer_name(bias);
  const bool is_renamed = (name.starts_with("onnx::Conv_") && bias_name.starts_with("onnx::")) ||
                          bias_name == name + "_bias";
  if (is_renamed && op.node().rule.empty()) ++op.all().folded_norms;
}

std::vector<OnnxLayerArray> weight_and_bias(OnnxOperator& op, const OnnxConstant& weight,
                                            const Numbers& shape, std::int64_t out) {
  std::vector<OnnxLayerArray> arrays{{"weight", weight, shape}};
  if (has_own_bias(op)) arrays.push_back({"bias", op.constant(2, {out}), {out}});
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
           .options = {{"out", std::to_string(shape[0])}, {"bias", bool_text(has_own_bias(op))}},
           .arrays = weight_and_bias(op, weight, {shape[0], shape[1]}, shape[0])});
  value.shape[1] = shape[0];
  op.set(with_bias_apart(op, std::move(value)));
}

std::int64_t positions_along(std::int64_t extent, const ConvAttributes& conv, std::size_t axis) {
  if (extent == kOnnxUnknown) return extent;
  expect_onnx_extent(extent);
  const std::int64_t padded = extent + conv.pads[axis] + conv.pads[axis + 2],
                     reach = conv.reach(axis);
  if (padded < reach)
    throw OnnxUnsupported("a window of " + std::to_string(reach) + " on an image of " +
                          std::to_string(extent));
  return (padded - reach) / conv.strides[axis] + 1;
}

// The weight's shape with 4 dimensions: of windows on a row, the kernel has a height of 1. Throws
// unless the value is an image, or a row, and the weight fits.
Numbers window_weight(const OnnxWindowInput& from, Numbers weight) {
  const std::size_t wanted = from.is_row ? 3 : 4;
  if (weight.size() != wanted || from.value.shape.size() != 4)
    throw OnnxUnsupported("it reads " + onnx_shape_text(from.value.shape) + " with a weight of " +
                          onnx_shape_text(weight) + ", expected images and 4 dimensions");
  if (from.is_row) weight.insert(weight.begin() + 2, 1);
  return weight;
}

// A weight that is computed from parameters, e.g. standardized.
void translate_computed_conv(OnnxOperator& op) {
  const OnnxWindowInput from = window_input(op);
  OnnxActivation value = from.value, weight = materialized(op, plain_input(op, 1));
  if (value.layout == OnnxActivation::Layout::kVector) {  // one pixel
    value = as_plain(value);
    value = ordered(op, value, {{}, {}, value.plain.dims.at(1)});
    value.layout = OnnxActivation::Layout::kImage;
  }
  const Numbers shape = window_weight(from, weight.shape);
  if (from.is_row) weight.plain.dims.insert(weight.plain.dims.begin() + 2, std::vector<int>{});
  const auto& dims = weight.plain.dims;
  if (std::ranges::any_of(dims, contains_samples) || std::ranges::any_of(shape, is_onnx_symbol))
    throw OnnxUnsupported("a weight that is computed from samples, " +
                          onnx_shape_text(weight.shape));
  ConvAttributes conv = conv_attributes(op, shape, " outputs", from.is_row);
  set_same_pads(op, {value.shape[2], value.shape[3]}, conv);
  std::int64_t channels = 0;
  if (value.layout != OnnxActivation::Layout::kImage ||
      __builtin_mul_overflow(shape[1], conv.groups, &channels) || channels != value.shape[1])
    throw OnnxUnsupported("it reads " + onnx_shape_text(value.shape) + ", its computed weight is " +
                          onnx_shape_text(shape) + " for each of " + std::to_string(conv.groups) +
                          " groups, expected an image with as many channels");
  weight = ordered(op, weight, {dims[0], dims[2], dims[3], dims[1]});
  OnnxListedLayer layer = conv_layer(op, "convolve", value.layer, shape[0], conv);
  constexpr const char* kOfWeight[] = {"out_channels", "kernel", "bias"};
  std::erase_if(layer.options, [&](const auto& option) {
    return std::ranges::find(kOfWeight, option.first) != std::end(kOfWeight);
  });
  value.layer = op.add_layer("convolve", {value.layer, weight.layer}, std::move(layer.options));
  value.shape = {kOnnxBatch, shape[0], positions_along(value.shape[2], conv, 0),
                 positions_along(value.shape[3], conv, 1)};
  set_windows(op, from, with_bias_apart(op, std::move(value)));
}

void translate_conv(OnnxOperator& op) {
  if (op.is_activation(1)) return translate_computed_conv(op);
  const OnnxWindowInput from = window_input(op, /*several=*/true);
  OnnxActivation value = from.value;
  const OnnxConstant weight = op.constant(1);
  const Numbers shape = window_weight(from, shape_of(weight));
  ConvAttributes conv = conv_attributes(op, shape, " outputs", from.is_row);
  const std::int64_t height =
      from.images.empty() ? value.shape[2] : value.shape[2] / from.image_count();
  set_same_pads(op, {height, value.shape[3]}, conv);
  std::int64_t channels = 0;
  if (__builtin_mul_overflow(shape[1], conv.groups, &channels) || channels != value.shape[1])
    throw OnnxUnsupported("it reads " + onnx_shape_text(value.shape) + ", its weight is " +
                          onnx_shape_text(shape) + " for each of " + std::to_string(conv.groups) +
                          " groups: the channels differ");
  if (has_bias(op)) note_folded_norm(op, weight, op.constant(2));
  if (value.layout == OnnxActivation::Layout::kVector) {
    if (!conv.is_one_pixel() || conv.groups != 1)
      throw OnnxUnsupported("a kernel of " + onnx_shape_text(conv.kernel) + " and " +
                            std::to_string(conv.groups) +
                            " groups on one pixel, expected 1 of each without padding");
    return translate_pixel_conv(op, std::move(value), weight, shape);
  }
  const std::int64_t rows = positions_along(height, conv, 0);
  if (!from.images.empty()) value = spread_images(op, from, conv);
  OnnxListedLayer layer = conv_layer(op, "conv2d", value.layer, shape[0], conv);
  layer.arrays = weight_and_bias(op, weight, shape, shape[0]);
  value.layer = add_weighted(op, std::move(layer));
  value.shape = {kOnnxBatch, shape[0], positions_along(value.shape[2], conv, 0),
                 positions_along(value.shape[3], conv, 1)};
  set_windows(op, from, with_bias_apart(op, std::move(value)), rows);
}

// Sets the pads that output_shape or auto_pad leave to the image. An output that is larger than all
// windows has more rows or columns at the end.
void set_transposed_pads(OnnxOperator& op, const Numbers& image, ConvAttributes& conv,
                         Numbers& more, bool is_row) {
  Numbers sizes = op.integers("output_shape").value_or(Numbers{});
  if (sizes.empty() && !conv.pads.empty()) return;
  if (is_row && sizes.size() == 1) sizes.insert(sizes.begin(), 1);
  if (!sizes.empty()) expect_numbers("output_shape", sizes, 2, 1);
  for (std::size_t axis = 0; axis < 2; ++axis) {
    std::int64_t total = conv.reach(axis) + more[axis] - conv.strides[axis];
    if (!sizes.empty()) {
      if (image[axis] == kOnnxUnknown)
        throw OnnxUnsupported(
            "output_shape for an image whose height or width the file does not have");
      expect_onnx_extent(image[axis]);
      total += image[axis] * conv.strides[axis] - sizes[axis];
      more[axis] += std::max<std::int64_t>(0, -total);
    }
    set_pads_along(op, axis, std::max<std::int64_t>(0, total), conv);
  }
  expect_numbers("pads of the output's shape", conv.pads, 4, 0);
}

// The extent of the output of a transposed convolution.
std::int64_t transposed_extent(std::int64_t from, const ConvAttributes& conv, std::int64_t more,
                               std::size_t axis) {
  if (from == kOnnxUnknown) return from;
  expect_onnx_extent(from);
  const std::int64_t to = (from - 1) * conv.strides[axis] + conv.reach(axis) + more -
                          conv.pads[axis] - conv.pads[axis + 2];
  if (to < 1 || to > kMaxOnnxExtent)
    throw OnnxUnsupported("an output of " + std::to_string(to) + " pixels along an axis");
  return to;
}

// Its weight is [c, outputs / groups, height, width].
void translate_conv_transpose(OnnxOperator& op) {
  OnnxWindowInput from = window_input(op);
  if (!from.is_row && !from.is_shared) from.value = op.image(0);
  OnnxActivation value = from.value;
  const OnnxConstant weight = op.constant(1);
  const Numbers shape = window_weight(from, shape_of(weight));
  ConvAttributes conv = conv_attributes(op, shape, " inputs", from.is_row);
  Numbers more = op.integers("output_padding").value_or(Numbers{0, 0});
  if (from.is_row && more.size() == 1) more.insert(more.begin(), 0);
  expect_numbers("output_padding", more, 2, 0);
  set_transposed_pads(op, {value.shape[2], value.shape[3]}, conv, more, from.is_row);
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
  value.shape = {kOnnxBatch, out, transposed_extent(value.shape[2], conv, more[0], 0),
                 transposed_extent(value.shape[3], conv, more[1], 1)};
  set_windows(op, from, with_bias_apart(op, std::move(value)));
}

}  // namespace

std::vector<OnnxOperatorRow> onnx_convolutions() {
  return {{"Conv", translate_conv}, {"ConvTranspose", translate_conv_transpose}};
}

}  // namespace models
