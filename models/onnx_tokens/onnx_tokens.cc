// Token ids choose rows of a table of embeddings, which may be the matrix of the output layer too.
#include <algorithm>
#include <vector>

#include "engine/core/error.h"
#include "io/base/text/escape_text.h"
#include "models/onnx_import/onnx_plain.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

bool is_integer_type(std::int64_t onnx_type) { return onnx_type == 6 || onnx_type == 7; }

// Returns whether a Reshape to these extents leaves [batch, length] as it is.
bool is_same_shape(OnnxOperator& op, const Numbers& to, std::int64_t length) {
  if (to.size() != 2 || (to[0] == -1 && to[1] == -1)) return false;
  const bool takes_zero = op.integer("allowzero", 0) == 0;
  const std::int64_t fixed = op.all().fixed_batch;
  const bool has_batch = to[0] == kOnnxBatch || to[0] == -1 || (fixed > 0 && to[0] == fixed) ||
                         (to[0] == 0 && takes_zero);
  return has_batch && (to[1] == length || to[1] == -1 || (to[1] == 0 && takes_zero));
}

bool is_copy(OnnxTranslation& all, const OnnxConstant& matrix, const OnnxConstant& table) {
  if (matrix.tensor == table.tensor) return false;
  const std::vector<std::string> sources = all.origins.parameters_in(matrix.tensor->name);
  // The exporter may have computed other numbers from it.
  if (!sources.empty())
    return sources == std::vector<std::string>{table.tensor->name} &&
           has_same_numbers(all, matrix, table);
  if (all.origins.are_known() || !all.origins.is_anonymous(matrix.tensor->name)) return false;
  return has_same_numbers(all, matrix, table);
}

}  // namespace

std::optional<OnnxTokens> tokens_of(const std::string& file, const io::ReadValue& input) {
  if (!is_integer_type(input.type_number)) return std::nullopt;
  Numbers shape = input.shape;
  std::ranges::replace(shape, std::int64_t{-1}, kOnnxUnknown);
  if (shape.size() != 2 || shape[1] < 1 || shape[1] > kMaxOnnxExtent)
    throw engine::ModelError(file + ": its input '" + base::escape_text(input.name) +
                             "' of integers is " + onnx_shape_text(shape) +
                             ", expected token ids, [batch, length], of a fixed length; name the "
                             "batch alone in dynamic_axes or dynamic_shapes");
  shape[0] = kOnnxBatch;
  return OnnxTokens{std::move(shape)};
}

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

void share_table(OnnxOperator& op, OnnxListedLayer& layer) {
  OnnxTranslation& all = op.all();
  OnnxConstant& matrix = layer.arrays.at(0).from;
  if (all.tokens == 0 || layer.kind != "dense" || layer.arrays.size() != 1) return;
  for (const OnnxListedLayer& other : all.layers.all())
    if (other.kind == "embedding" && other.tied.empty() &&
        other.arrays.at(0).shape == layer.arrays[0].shape &&
        is_copy(all, matrix, other.arrays[0].from)) {
      matrix = other.arrays[0].from;
      return;
    }
}

}  // namespace models
