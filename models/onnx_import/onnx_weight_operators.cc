// Operators that become layers with parameters.
#include <algorithm>
#include <string>

#include "io/base/text/text_format.h"
#include "models/onnx_import/onnx_plain.h"
#include "models/onnx_import/onnx_products.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

std::string bool_text(bool value) { return value ? "true" : "false"; }

const std::string& initializer_name(const OnnxConstant& constant) { return constant.tensor->name; }

// Adds a layer with a weight and perhaps a bias. A weight that an earlier layer has is shared, as
// in PyTorch, with its bias. Returns the layer's index.
int add_weighted(OnnxOperator& op, OnnxListedLayer layer) {
  OnnxTranslation& all = op.all();
  const io::StoredTensor* weight = layer.arrays.at(0).from.tensor;
  layer.name = all.layers.free_name(weight->name, op.node());
  const int owner = all.layers.user_of(weight);
  if (owner < 0) {
    const int index = all.layers.add(std::move(layer));
    all.layers.set_user(weight, index);
    return index;
  }
  const OnnxListedLayer& other = all.layers.at(owner);
  bool is_same = other.kind == layer.kind && other.arrays.size() == layer.arrays.size();
  for (std::size_t i = 0; is_same && i < layer.arrays.size(); ++i)
    is_same = other.arrays[i].from.tensor == layer.arrays[i].from.tensor &&
              other.arrays[i].from.transposed == layer.arrays[i].from.transposed &&
              other.arrays[i].shape == layer.arrays[i].shape;
  // An Add may follow with the bias; a weight that is equal by chance is not shared then.
  if (!is_same && op.node().type == "MatMul" && other.kind == "dense" &&
      other.arrays.at(0).shape == layer.arrays.at(0).shape)
    return all.layers.add(std::move(layer));
  if (!is_same)
    throw OnnxUnsupported("it shares the weight '" + weight->name + "' with layer '" + other.name +
                          "', but not its bias, shape or use");
  layer.tied = other.name;
  layer.arrays.clear();
  return all.layers.add(std::move(layer));
}

// A convolution's attributes, which must be those of one window, stride and padding.
struct ConvAttributes {
  std::int64_t kernel = 1, stride = 1, padding = 0, groups = 1;
};

ConvAttributes conv_attributes(OnnxOperator& op, const Numbers& weight) {
  const Numbers kernel = op.integers("kernel_shape").value_or(Numbers{weight[2], weight[3]});
  const Numbers strides = op.integers("strides").value_or(Numbers{1, 1});
  const Numbers pads = op.integers("pads").value_or(Numbers{0, 0, 0, 0});
  const Numbers dilations = op.integers("dilations").value_or(Numbers{1, 1});
  const std::int64_t group = op.integer("group", 1);
  if (group < 1 || group > weight[0] || weight[0] % group != 0)
    throw OnnxUnsupported("group " + std::to_string(group) + " with " + std::to_string(weight[0]) +
                          " outputs, expected groups of equal size");
  if (dilations != Numbers{1, 1})
    throw OnnxUnsupported("dilations " + onnx_shape_text(dilations) + ", expected 1");
  if (op.text("auto_pad", "NOTSET") != "NOTSET")
    throw OnnxUnsupported("auto_pad, expected explicit pads");
  if (kernel.size() != 2 || kernel != Numbers{weight[2], weight[3]} || kernel[0] != kernel[1])
    throw OnnxUnsupported("a kernel of " + onnx_shape_text(kernel) + ", expected a square one");
  if (strides.size() != 2 || strides[0] != strides[1] || strides[0] < 1 ||
      strides[0] > kMaxOnnxExtent)
    throw OnnxUnsupported("strides " + onnx_shape_text(strides) + ", expected equal ones");
  if (pads.size() != 4 || pads != Numbers(4, pads[0]) || pads[0] < 0 || pads[0] > kMaxOnnxExtent)
    throw OnnxUnsupported("pads " + onnx_shape_text(pads) + ", expected the same at all sides");
  return {kernel[0], strides[0], pads[0], group};
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

std::int64_t positions_along(std::int64_t extent, const ConvAttributes& conv) {
  if (extent == kOnnxUnknown) return extent;
  if (extent > kMaxOnnxExtent)
    throw OnnxUnsupported("an image of " + std::to_string(extent) + ", expected at most " +
                          std::to_string(kMaxOnnxExtent));
  const std::int64_t padded = extent + 2 * conv.padding;
  if (padded < conv.kernel)
    throw OnnxUnsupported("a kernel of " + std::to_string(conv.kernel) + " on an image of " +
                          std::to_string(extent));
  return (padded - conv.kernel) / conv.stride + 1;
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

void translate_conv(OnnxOperator& op) {
  OnnxActivation value = image_or_vector(op, 0);
  const OnnxConstant weight = op.constant(1);
  const Numbers shape = shape_of(weight);
  if (shape.size() != 4 || value.shape.size() != 4)
    throw OnnxUnsupported("it reads " + onnx_shape_text(value.shape) + " with a weight of " +
                          onnx_shape_text(shape) + ", expected images and 4 dimensions");
  const ConvAttributes conv = conv_attributes(op, shape);
  std::int64_t channels = 0;
  if (__builtin_mul_overflow(shape[1], conv.groups, &channels) || channels != value.shape[1])
    throw OnnxUnsupported("it reads " + onnx_shape_text(value.shape) + ", its weight is " +
                          onnx_shape_text(shape) + " for each of " + std::to_string(conv.groups) +
                          " groups: the channels differ");
  if (op.has_input(2)) note_folded_norm(op, weight, op.constant(2));
  if (value.layout == OnnxActivation::Layout::kVector) {
    if (conv.kernel != 1 || conv.padding != 0 || conv.groups != 1)
      throw OnnxUnsupported("a kernel of " + std::to_string(conv.kernel) + " and " +
                            std::to_string(conv.groups) +
                            " groups on one pixel, expected 1 of each without padding");
    return translate_pixel_conv(op, std::move(value), weight, shape);
  }
  OnnxListedLayer layer{.kind = "conv2d",
                        .name = {},
                        .tied = {},
                        .inputs = {value.layer},
                        .options = {{"out_channels", std::to_string(shape[0])},
                                    {"kernel", std::to_string(conv.kernel)},
                                    {"stride", std::to_string(conv.stride)},
                                    {"padding", std::to_string(conv.padding)},
                                    {"bias", bool_text(op.has_input(2))}},
                        .arrays = weight_and_bias(op, weight, shape, shape[0])};
  if (conv.groups != 1) layer.options.emplace_back("groups", std::to_string(conv.groups));
  value.layer = add_weighted(op, std::move(layer));
  value.shape = {kOnnxBatch, shape[0], positions_along(value.shape[2], conv),
                 positions_along(value.shape[3], conv)};
  op.set(std::move(value));
}

void translate_batch_norm(OnnxOperator& op) {
  OnnxActivation value = op.image(0);
  const std::int64_t channels = value.shape[1];
  // ONNX weighs the old statistics, PyTorch and the engine the new ones.
  const double momentum = shortest_decimal(static_cast<float>(1 - op.real("momentum", 0.9)));
  const OnnxConstant weight = op.constant(1, {channels});
  OnnxListedLayer layer{.kind = "batch_norm2d",
                        .name = op.all().layers.free_name(initializer_name(weight), op.node()),
                        .tied = {},
                        .inputs = {value.layer},
                        .options = {{"eps", io::shortest_text(op.real("epsilon", 1e-5))},
                                    {"momentum", io::shortest_text(momentum)}},
                        .arrays = {{"weight", weight, {channels}},
                                   {"bias", op.constant(2, {channels}), {channels}},
                                   {"running_mean", op.constant(3, {channels}), {channels}},
                                   {"running_var", op.constant(4, {channels}), {channels}}}};
  value.layer = op.all().layers.add(std::move(layer));
  op.set(std::move(value));
}

// Over the last dimensions, which become the last one of the layer.
void translate_layer_norm(OnnxOperator& op) {
  OnnxActivation value = plain_input(op, 0);
  std::vector<int> axes;
  Numbers normed;
  for (std::size_t i = dimension_of(op.integer("axis", -1), value.plain.dims.size());
       i < value.plain.dims.size(); ++i) {
    const std::vector<int>& dim = value.plain.dims[i];
    axes.insert(axes.end(), dim.begin(), dim.end());
    normed.push_back(extent_of(value.plain, dim));
  }
  if (std::ranges::any_of(normed, is_onnx_symbol))
    throw OnnxUnsupported("over " + onnx_shape_text(normed) + ", expected known extents");
  const std::int64_t width = extent_of(value.plain, axes);
  const OnnxConstant weight = op.constant(1, normed);
  value = with_last(op, std::move(value), axes);
  OnnxListedLayer layer{.kind = "layer_norm",
                        .name = op.all().layers.free_name(initializer_name(weight), op.node()),
                        .tied = {},
                        .inputs = {value.layer},
                        .options = {{"eps", io::shortest_text(op.real("epsilon", 1e-5))}},
                        .arrays = {{"weight", weight, {width}}, {"bias", {}, {width}}}};
  if (op.has_input(2)) layer.arrays[1].from = op.constant(2, normed);
  value.layer = op.all().layers.add(std::move(layer));
  set_plain(op, std::move(value));
}

// `matrix` has the shape [out, in] after its transposition; dimension `dim` of the value is `in`.
void set_dense(OnnxOperator& op, OnnxActivation value, std::size_t dim, const OnnxConstant& matrix,
               std::vector<OnnxLayerArray> bias) {
  const Numbers shape = shape_of(matrix);
  const bool is_vector = value.layout == OnnxActivation::Layout::kVector && value.shape.size() == 2;
  if (!is_vector) {
    const std::vector<int> axes = as_plain(value).plain.dims.at(dim);
    if (std::ranges::find(axes, kOnnxBatchAxis) != axes.end())
      throw OnnxUnsupported("a product over the samples of " + onnx_shape_text(value.shape));
    value = with_last(op, std::move(value), axes);
  }
  const std::int64_t in = is_vector ? value.shape.at(1) : value.plain.stored.back();
  if (shape.size() != 2 || (shape[1] != in && in != kOnnxUnknown))
    throw OnnxUnsupported("it reads " + onnx_shape_text(value.shape) + " with a weight of " +
                          onnx_shape_text(shape) + " (outputs, inputs), expected [batch, inputs]");
  std::vector<OnnxLayerArray> arrays{{"weight", matrix, shape}};
  for (OnnxLayerArray& array : bias) arrays.push_back(std::move(array));
  const bool has_bias = arrays.size() > 1;
  value.layer = add_weighted(
      op, {.kind = "dense",
           .name = {},
           .tied = {},
           .inputs = {value.layer},
           .options = {{"out", std::to_string(shape[0])}, {"bias", bool_text(has_bias)}},
           .arrays = std::move(arrays)});
  if (is_vector) {
    value.shape = {kOnnxBatch, shape[0]};
    return op.set(std::move(value));
  }
  replace_last(value.plain, dim, shape[0]);
  set_plain(op, std::move(value));
}

OnnxConstant matrix_of(OnnxOperator& op, std::size_t index, bool transposed) {
  OnnxConstant matrix = op.constant(index);
  if (matrix.tensor->shape.size() != 2)
    throw OnnxUnsupported("its weight has the shape " + onnx_shape_text(matrix.tensor->shape) +
                          ", expected two dimensions");
  matrix.transposed = matrix.transposed != transposed;
  return matrix;
}

void translate_gemm(OnnxOperator& op) {
  if (op.real("alpha", 1) != 1 || op.real("beta", 1) != 1 || op.integer("transA", 0) != 0)
    throw OnnxUnsupported("expected alpha 1, beta 1 and transA 0");
  const OnnxConstant matrix = matrix_of(op, 1, op.integer("transB", 0) == 0);
  std::vector<OnnxLayerArray> bias;
  if (op.has_input(2)) {
    const std::int64_t out = shape_of(matrix)[0];
    const OnnxConstant given = op.constant(2);
    if (shape_of(given) != Numbers{out} && shape_of(given) != Numbers{1, out})
      throw OnnxUnsupported("its bias has the shape " + onnx_shape_text(shape_of(given)) +
                            ", expected " + onnx_shape_text({out}));
    bias.push_back({"bias", given, {out}});
  }
  set_dense(op, op.activation(0), 1, matrix, std::move(bias));
}

bool is_matrix(OnnxOperator& op, std::size_t index) {
  const auto* constant = std::get_if<OnnxConstant>(&op.input(index));
  return constant != nullptr && constant->tensor->shape.size() == 2;
}

// A matrix before the value multiplies its columns.
void translate_mat_mul(OnnxOperator& op) {
  const auto rank = [&](std::size_t index) {
    const auto* value = std::get_if<OnnxActivation>(&op.input(index));
    return value == nullptr ? 0 : value->shape.size();
  };
  if (rank(0) >= 2 && is_matrix(op, 1))
    return set_dense(op, op.activation(0), rank(0) - 1, matrix_of(op, 1, /*transposed=*/true), {});
  if (is_matrix(op, 0) && rank(1) > 2)
    return set_dense(op, op.activation(1), rank(1) - 2, matrix_of(op, 0, /*transposed=*/false), {});
  translate_product(op);
}

}  // namespace

std::vector<OnnxOperatorRow> onnx_weight_operators() {
  return {{"Conv", translate_conv},
          {"BatchNormalization", translate_batch_norm},
          {"LayerNormalization", translate_layer_norm},
          {"Gemm", translate_gemm},
          {"MatMul", translate_mat_mul}};
}

}  // namespace models
