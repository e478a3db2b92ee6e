// A node's inputs as outputs of layers, in the order that a special layer needs.
#include <string>

#include "models/onnx_translation/onnx_plain.h"

namespace models {

OnnxActivation OnnxOperator::activation(std::size_t index) {
  refuse_tokens(index);
  const auto* found = std::get_if<OnnxActivation>(&input(index));
  if (found == nullptr)
    throw OnnxUnsupported("input " + std::to_string(index) +
                          " is a constant, expected the output of a layer");
  if (found->shape.size() == 2 && found->layout == OnnxActivation::Layout::kImage) {
    const OnnxActivation row = flattened(*this, *found);
    all_.values.set(node().inputs[index], row);
    return row;
  }
  if (found->layout != OnnxActivation::Layout::kPlain) return *found;
  const bool is_row = found->shape.size() == 2 && found->shape[0] == kOnnxBatch &&
                      found->plain.dims[0] == std::vector<int>{kOnnxBatchAxis};
  const OnnxActivation value =
      is_row ? flattened(*this, *found) : as_special(materialized(*this, *found));
  all_.values.set(node().inputs[index], value);
  return value;
}

OnnxActivation OnnxOperator::image(std::size_t index) {
  OnnxActivation found = image_or_vector(*this, index);
  if (found.layout == OnnxActivation::Layout::kVector && found.shape.size() == 4)
    found = as_image(*this, found);  // of one pixel
  if (found.layout != OnnxActivation::Layout::kImage)
    throw OnnxUnsupported("it reads " + onnx_shape_text(found.shape) +
                          ", expected an image, [batch, channels, height, width]");
  return found;
}

OnnxActivation image_or_vector(OnnxOperator& op, std::size_t index) {
  const OnnxActivation found = op.activation(index);
  if (found.layout != OnnxActivation::Layout::kPlain || found.shape.size() != 4) return found;
  const OnnxActivation value = as_image(op, found);
  op.all().values.set(op.node().inputs[index], value);
  return value;
}

std::int64_t elements_of(const OnnxActivation& value) {
  std::int64_t elements = 1;
  for (std::size_t i = 1; i < value.shape.size(); ++i)
    if (value.shape[i] == kOnnxUnknown ||
        __builtin_mul_overflow(elements, value.shape[i], &elements))
      return kOnnxUnknown;
  return elements;
}

OnnxActivation flattened(OnnxOperator& op, const OnnxActivation& from) {
  OnnxActivation to = from;
  to.shape = {kOnnxBatch, elements_of(from)};
  if (from.layout == OnnxActivation::Layout::kVector) return to;
  if (from.layout == OnnxActivation::Layout::kPlain) {
    OnnxActivation all = in_order(op, from);
    if (!reshape_plain(all.plain, {kOnnxBatch, -1}, 0))
      throw OnnxUnsupported(onnx_shape_text(from.shape) + ", expected [batch, ...]");
    return as_special(ordered(op, all, {all.plain.dims[1]}));
  }
  to.layout = OnnxActivation::Layout::kVector;
  to.layer = op.add_layer("flatten", {from.layer});
  return to;
}

}  // namespace models
