// Operators that become layers with parameters.
#include <algorithm>
#include <string>

#include "io/base/text/text_parts.h"
#include "io/interchange/array_files.h"
#include "models/onnx_import/onnx_operators.h"
#include "models/onnx_parameters/onnx_sharing.h"
#include "models/onnx_translation/onnx_combined.h"
#include "models/onnx_translation/onnx_plain.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// A norm without parameters, or with a weight or a bias alone, which layers of their own apply.
void set_scaled_norm(OnnxOperator& op, OnnxActivation value) {
  value.layer =
      op.add_layer("layer_norm", {value.layer},
                   {{"eps", base::shortest_text(op.real("epsilon", 1e-5))}, {"affine", "false"}});
  if (!is_all(op, 1, 1)) value = combined(op, "multiply", std::move(value), plain_input(op, 1));
  if (op.has_input(2) && !is_all(op, 2, 0))
    value = combined(op, "add", std::move(value), plain_input(op, 2));
  set_plain(op, std::move(value));
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
  value = with_last(op, std::move(value), axes);
  if (!op.has_input(2) || is_all(op, 1, 1) || is_all(op, 2, 0) ||
      is_apart(op.all(), op.constant(1)) || is_apart(op.all(), op.constant(2)) ||
      !is_bias_of(op, op.all(), op.constant(1), op.constant(2)))
    return set_scaled_norm(op, std::move(value));
  const OnnxConstant weight = op.constant(1), bias = op.constant(2);
  if (shape_of(weight) != normed || shape_of(bias) != normed)  // of the last ones alone
    return set_scaled_norm(op, std::move(value));
  OnnxListedLayer layer{.kind = "layer_norm",
                        .name = op.all().layers.free_name(initializer_name(weight), op.node()),
                        .tied = {},
                        .inputs = {value.layer},
                        .options = {{"eps", base::shortest_text(op.real("epsilon", 1e-5))}},
                        .arrays = {{"weight", weight, {width}}, {"bias", bias, {width}}}};
  value.layer = add_norm(op, std::move(layer));
  set_plain(op, std::move(value));
}

// `matrix` has the shape [out, in] after its transposition; dimension `dim` of the value is `in`.
void set_dense(OnnxOperator& op, OnnxActivation value, std::size_t dim, const OnnxConstant& matrix,
               std::vector<OnnxLayerArray> bias) {
  const Numbers shape = shape_of(matrix);
  const bool is_vector = value.layout == OnnxActivation::Layout::kVector && value.shape.size() == 2;
  if (!is_vector) {
    const OnnxPlain plain = as_plain(value).plain;
    if (dim >= plain.dims.size())
      throw OnnxUnsupported("it reads " + onnx_shape_text(value.shape) +
                            ", expected [batch, inputs]");
    const std::vector<int> axes = plain.dims[dim];
    if (contains_samples(axes))
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

OnnxActivation output_of(const OnnxOperator& op, OnnxTranslation& all) {
  return std::get<OnnxActivation>(*all.values.find(op.node().outputs[0]));
}

// A matrix that is computed from parameters, e.g. by a norm of its rows, or a layer of its own.
void translate_computed_gemm(OnnxOperator& op) {
  OnnxActivation matrix = materialized(op, plain_input(op, 1));
  if (matrix.plain.dims.size() != 2)
    throw OnnxUnsupported("its weight has the shape " + onnx_shape_text(matrix.shape) +
                          ", expected two dimensions");
  if (op.integer("transB", 0) != 0) std::swap(matrix.plain.dims[0], matrix.plain.dims[1]);
  set_product(op, plain_input(op, 0), matrix);
  op.set(with_zero_bias(op, with_bias_apart(op, output_of(op, op.all()))));
}

void translate_gemm(OnnxOperator& op) {
  const bool has_beta = op.has_input(2) && op.real("beta", 1) != 1;
  if (op.real("alpha", 1) != 1 || has_beta || op.integer("transA", 0) != 0)
    throw OnnxUnsupported("expected alpha 1, beta 1 and transA 0");
  if (op.is_activation(1) || is_apart(op.all(), op.constant(1))) return translate_computed_gemm(op);
  const OnnxConstant matrix = matrix_of(op, 1, op.integer("transB", 0) == 0);
  std::vector<OnnxLayerArray> bias;
  if (has_own_bias(op)) {
    const std::int64_t out = shape_of(matrix)[0];
    const OnnxConstant given = op.constant(2);
    if (shape_of(given) != Numbers{out} && shape_of(given) != Numbers{1, out})
      throw OnnxUnsupported("its bias has the shape " + onnx_shape_text(shape_of(given)) +
                            ", expected " + onnx_shape_text({out}));
    bias.push_back({"bias", given, {out}});
  }
  const bool is_complete = has_bias(op) == !bias.empty();
  set_dense(op, op.activation(0), 1, matrix, std::move(bias));
  if (is_complete) return;
  op.set(with_bias_apart(op, output_of(op, op.all())));
}

// A constant that no layer of its own has.
bool is_matrix(OnnxOperator& op, std::size_t index) {
  const auto* constant = std::get_if<OnnxConstant>(&op.input(index));
  return constant != nullptr && constant->tensor->shape.size() == 2 &&
         !is_apart(op.all(), op.constant(index));
}

// The dimensions of a constant; 0: the input is another value.
std::size_t constant_rank(OnnxOperator& op, std::size_t index) {
  if (const auto* stored = std::get_if<OnnxConstant>(&op.input(index)))
    return shape_of(*stored).size();
  const auto* tensor = std::get_if<OnnxTensor>(&op.input(index));
  return tensor == nullptr ? 0 : tensor->shape.size();
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
  const std::size_t constant = constant_rank(op, 0);  // e.g. a table of positions
  if (constant > 2 && is_matrix(op, 1))
    return set_dense(op, plain_input(op, 0), constant - 1, matrix_of(op, 1, /*transposed=*/true),
                     {});
  translate_product(op);
  op.set(with_zero_bias(op, output_of(op, op.all())));
}

}  // namespace

std::vector<OnnxOperatorRow> onnx_weight_operators() {
  return {{"LayerNormalization", translate_layer_norm},
          {"Gemm", translate_gemm},
          {"MatMul", translate_mat_mul}};
}

}  // namespace models
