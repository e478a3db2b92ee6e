// Token ids choose rows of a table of embeddings, which may be the matrix of the output layer too.
#include "models/onnx_tokens/onnx_tokens.h"

#include <algorithm>
#include <vector>

#include "engine/core/error.h"
#include "io/base/text/escape_text.h"
#include "models/onnx_parameters/onnx_sharing.h"
#include "models/onnx_translation/onnx_plain.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// Returns whether a Reshape to these extents leaves [batch, length] as it is.
bool is_same_shape(OnnxOperator& op, const Numbers& to, std::int64_t length) {
  if (to.size() != 2 || (to[0] == -1 && to[1] == -1)) return false;
  const bool takes_zero = op.integer("allowzero", 0) == 0;
  const std::int64_t fixed = op.all().fixed_batch;
  const bool has_batch = to[0] == kOnnxBatch || to[0] == -1 || (fixed > 0 && to[0] == fixed) ||
                         (to[0] == 0 && takes_zero);
  return has_batch && (to[1] == length || to[1] == -1 || (to[1] == 0 && takes_zero));
}

}  // namespace

bool keep_tokens(OnnxOperator& op) {
  const auto* found = std::get_if<OnnxTokens>(&op.input(0));
  if (found == nullptr) return false;
  OnnxTokens tokens = *found;
  if (op.node().type == "Cast") {
    if (!is_integer_type(op.integer("to", 0))) op.refuse_tokens(0);
  } else if (const Numbers to = op.numbers(1); !is_same_shape(op, to, tokens.shape[1])) {
    throw OnnxUnsupported("token ids of the shape " + onnx_shape_text(tokens.shape) + " to " +
                          onnx_shape_text(to) + ", expected the same shape");
  }
  op.set(std::move(tokens));
  return true;
}

bool set_embedding(OnnxOperator& op) {
  const auto* tokens = std::get_if<OnnxTokens>(&op.input(1));
  if (tokens == nullptr) return false;
  const std::int64_t length = tokens->shape[1];
  const OnnxConstant table = op.constant(0);
  const Numbers shape = shape_of(table);
  const std::int64_t axis = op.integer("axis", 0);
  if (shape.size() != 2 || (axis != 0 && axis != -2) || std::ranges::min(shape) < 1)
    throw OnnxUnsupported("token ids choose from " + onnx_shape_text(shape) + " along axis " +
                          std::to_string(axis) +
                          ", expected rows (axis 0) of a table [vocabulary, width]");
  OnnxActivation value{.layer = -1,
                       .shape = {kOnnxBatch, length, shape[1]},
                       .layout = OnnxActivation::Layout::kPlain};
  value.layer = add_weighted(op, {.kind = "embedding",
                                  .name = {},
                                  .tied = {},
                                  .inputs = {-1},
                                  .options = {{"vocabulary", std::to_string(shape[0])},
                                              {"width", std::to_string(shape[1])}},
                                  .arrays = {{"weight", table, shape}}});
  value.plain.stored = {length, shape[1]};
  value.plain.dims = {{kOnnxBatchAxis}};
  for (const std::int64_t extent : value.plain.stored) {
    value.plain.dims.emplace_back();
    if (extent == 1) continue;
    value.plain.dims.back().push_back(static_cast<int>(value.plain.axes.size()));
    value.plain.axes.push_back({extent});
  }
  set_plain(op, std::move(value));
  return true;
}

}  // namespace models
