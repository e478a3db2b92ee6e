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

// The axes are an attribute up to operator set 17, then an input.
void translate_reduce_mean(OnnxOperator& op) {
  Numbers axes = op.has_input(1) ? op.numbers(1) : op.integers("axes").value_or(Numbers{});
  const auto rank = std::ssize(op.activation(0).shape);
  for (std::int64_t& axis : axes)
    if (axis < 0) axis += rank;
  std::ranges::sort(axes);
  if (rank != 4 || axes != Numbers{2, 3}) return translate_reduction(op, axes);
  op.set(global_average(op, image_or_vector(op, 0), op.integer("keepdims", 1) != 0));
}

}  // namespace

OnnxActivation global_average(OnnxOperator& op, OnnxActivation value, bool keeps_axes) {
  if (value.layout == OnnxActivation::Layout::kImage) {
    value.layer = op.add_layer("global_average_pool", {value.layer});
    value.layout = OnnxActivation::Layout::kVector;
  }
  value.shape.resize(2);
  if (keeps_axes) value.shape.insert(value.shape.end(), {1, 1});
  return value;
}

std::vector<OnnxOperatorRow> onnx_plain_operators() {
  return {{"Dropout", translate_dropout}, {"ReduceMean", translate_reduce_mean}};
}

}  // namespace models
