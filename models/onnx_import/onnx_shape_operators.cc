// Shapes, constants, and changes of shape.
#include <algorithm>
#include <numeric>
#include <string>
#include <variant>

#include "models/onnx_import/onnx_operators.h"
#include "models/onnx_tokens/onnx_tokens.h"
#include "models/onnx_translation/onnx_plain.h"
#include "models/onnx_translation/onnx_tensors.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

void fold_constant(OnnxOperator& op) {
  if (const io::ReadAttribute* value = op.attribute("value"))
    if (const auto* tensor = std::get_if<io::StoredTensor>(&value->value))
      return op.set(OnnxConstant{.tensor = tensor});
  if (op.attribute("value_int") != nullptr)
    return op.set(OnnxTensor{
        .shape = {}, .integers = {integer_of_file(op.integer("value_int", 0))}, .reals = {}});
  if (auto list = op.integers("value_ints"); list && list->size() <= kMaxOnnxNumbers) {
    std::ranges::transform(*list, list->begin(), integer_of_file);
    return op.set(OnnxTensor{.shape = {std::ssize(*list)}, .integers = *list, .reals = {}});
  }
  if (const io::ReadAttribute* list = op.attribute("value_floats"))
    if (const auto* reals = std::get_if<std::vector<float>>(&list->value);
        reals != nullptr && reals->size() <= kMaxOnnxNumbers) {
      OnnxTensor all{.shape = {std::ssize(*reals)}, .integers = {}, .reals = {}, .is_real = true};
      for (const float value : *reals) all.reals.push_back(shortest_decimal(value));
      return op.set(std::move(all));
    }
  if (op.attribute("value_float") != nullptr)
    return op.set(OnnxTensor{
        .shape = {}, .integers = {}, .reals = {op.real("value_float", 0)}, .is_real = true});
  throw OnnxUnsupported("a constant that is no tensor, number or short list of numbers");
}

// PyTorch's exporter merges tensors that are equal; the output has the name of the other one.
void fold_identity(OnnxOperator& op) {
  if (const auto* tensor = std::get_if<OnnxTensor>(&op.input(0)))
    count_computed(op, count_of(*tensor));  // a copy
  OnnxKnown known = op.input(0);
  const OnnxTranslation& all = op.all();
  const std::string& name = op.node().outputs[0];
  auto* constant = std::get_if<OnnxConstant>(&known);
  if (constant != nullptr && !all.origins.are_known() && !all.origins.is_anonymous(name))
    constant->origin = all.origins.of(*constant->tensor, name), constant->alias = name;
  op.set(std::move(known));
}

void fold_shape(OnnxOperator& op) {
  const auto* known = std::get_if<OnnxActivation>(&op.input(0));
  const auto* tensor = std::get_if<OnnxTensor>(&op.input(0));
  const auto* tokens = std::get_if<OnnxTokens>(&op.input(0));
  const Numbers shape = known != nullptr    ? known->shape
                        : tensor != nullptr ? tensor->shape
                        : tokens != nullptr ? tokens->shape
                                            : shape_of(op.constant(0));
  const auto rank = std::ssize(shape);
  const auto place = [&](const char* name, std::int64_t otherwise) {
    const std::int64_t at = op.integer(name, otherwise);
    return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const std::int64_t begin = place("start", 0), end = place("end", rank);
  const Numbers part =
      begin < end ? Numbers(shape.begin() + begin, shape.begin() + end) : Numbers();
  op.set(OnnxTensor{.shape = {std::ssize(part)}, .integers = part, .reals = {}});
}

// Channels in groups, as ShuffleNet transposes them.
bool shuffle_groups(OnnxOperator& op, OnnxActivation value) {
  if (value.layout != OnnxActivation::Layout::kGroups ||
      op.integers("perm") != Numbers{0, 2, 1, 3, 4})
    return false;
  value.layer =
      op.add_layer("shuffle_channels", {value.layer}, {{"groups", std::to_string(value.shape[1])}});
  std::swap(value.shape[1], value.shape[2]);
  value.layout = OnnxActivation::Layout::kShuffled;
  op.set(std::move(value));
  return true;
}

// The order of the dimensions; without an attribute they are reversed.
Numbers transposition(OnnxOperator& op, std::size_t rank) {
  Numbers order(rank);
  std::iota(order.rbegin(), order.rend(), 0);
  order = op.integers("perm").value_or(order);
  Numbers sorted = order, all(rank);
  std::ranges::sort(sorted);
  std::iota(all.begin(), all.end(), 0);
  if (sorted != all)
    throw OnnxUnsupported("perm " + onnx_shape_text(order) + " of " + std::to_string(rank) +
                          " dimensions");
  return order;
}

void translate_transpose(OnnxOperator& op) {
  const auto* constant = std::get_if<OnnxConstant>(&op.input(0));
  if (constant != nullptr && constant->tensor->shape.size() == 2 &&
      transposition(op, 2) == Numbers{1, 0}) {
    OnnxConstant matrix = *constant;
    matrix.transposed = !matrix.transposed;
    return op.set(matrix);
  }
  if (const auto* known = std::get_if<OnnxActivation>(&op.input(0));
      known != nullptr && shuffle_groups(op, *known))
    return;
  OnnxActivation value = plain_input(op, 0);
  const auto dims = value.plain.dims;
  value.plain.dims.clear();
  for (const std::int64_t from : transposition(op, dims.size()))
    value.plain.dims.push_back(dims[static_cast<std::size_t>(from)]);
  set_plain(op, std::move(value));
}

void set_flattened(OnnxOperator& op) { op.set(flattened(op, op.activation(0))); }

// Replaces 0 by the extent of the input, and a fixed number of samples by the batch.
Numbers wanted_shape(OnnxOperator& op, const Numbers& from) {
  Numbers to = op.numbers(1);
  for (std::size_t i = 0; i < to.size(); ++i)
    if (to[i] == 0 && op.integer("allowzero", 0) == 0 && i < from.size()) to[i] = from[i];
  if (!to.empty() && to[0] > 0 && to[0] == op.all().fixed_batch) to[0] = kOnnxBatch;
  return to;
}

// [batch, columns] to [batch, columns, 1, 1]
bool adds_pixels(const Numbers& from, const Numbers& to) {
  return from.size() == 2 && to.size() == 4 && (to[0] == kOnnxBatch || to[0] == -1) &&
         to[1] == from[1] && to[2] == 1 && to[3] == 1;
}

// To a vector for each sample, with one extent that is known to be right if the other is -1.
bool is_flattening(const OnnxActivation& value, const Numbers& to) {
  if (to.size() != 2) return false;
  const std::int64_t elements = elements_of(value);
  const bool has_elements = elements != kOnnxUnknown && to[1] == elements;
  return (to[0] == kOnnxBatch && (to[1] == -1 || has_elements)) || (to[0] == -1 && has_elements);
}

// Returns whether `to` is this shape of a layer's output, with -1 for at most one extent.
bool is_shape(const Numbers& to, const Numbers& shape) {
  if (to.size() != shape.size() || std::ranges::count(to, -1) > 1) return false;
  for (std::size_t i = 0; i < to.size(); ++i)
    if (to[i] != -1 && (to[i] != shape[i] || to[i] == kOnnxUnknown)) return false;
  return true;
}

// An image to channels in groups, or back. Returns false for other shapes.
bool regroup(OnnxOperator& op, OnnxActivation value, const Numbers& to) {
  Numbers shape = value.shape;
  if (value.layout == OnnxActivation::Layout::kImage && shape.size() == 4 && to.size() == 5 &&
      to[1] > 0 && shape[1] > 0 && shape[1] % to[1] == 0) {
    shape.insert(shape.begin() + 1, to[1]);
    shape[2] /= to[1];
    value.layout = OnnxActivation::Layout::kGroups;
  } else if (value.layout == OnnxActivation::Layout::kGroups ||
             value.layout == OnnxActivation::Layout::kShuffled) {
    shape[1] *= shape[2];
    shape.erase(shape.begin() + 2);
    value.layout = OnnxActivation::Layout::kImage;
  } else {
    return false;
  }
  if (!is_shape(to, shape)) return false;
  value.shape = std::move(shape);
  op.set(std::move(value));
  return true;
}

// Another shape of any value, without a layer if the axes can be cut so. A value that is the same
// for all samples stays one: [1, ...].
void reshape_any(OnnxOperator& op, Numbers to) {
  OnnxActivation value = plain_input(op, 0);
  const bool has_samples = std::ranges::any_of(value.plain.dims, contains_samples);
  if (!has_samples && value.plain.dims.size() > 1 && value.plain.dims[0].empty() && !to.empty() &&
      to[0] == kOnnxBatch)
    to[0] = 1;
  const std::int64_t fixed = op.all().fixed_batch;
  if (!reshape_plain(value.plain, to, fixed)) {
    value = in_order(op, std::move(value));
    if (!reshape_plain(value.plain, to, fixed))
      throw OnnxUnsupported(onnx_shape_text(plain_input(op, 0).shape) + " to " +
                            onnx_shape_text(to) +
                            "; expected as many numbers, and the samples in one dimension");
  }
  set_plain(op, std::move(value));
}

// To two dimensions: those before the axis, and the others.
void translate_flatten(OnnxOperator& op) {
  const OnnxActivation value = op.activation(0);
  const auto rank = std::ssize(value.shape);
  const std::int64_t axis = op.integer("axis", 1), place = axis < 0 ? axis + rank : axis;
  const bool has_several = rank > 0 && batches_of(value.shape[0]) > 1;  // [4 batch, ...]
  if (place == 1 && !has_several) return set_flattened(op);
  if (place < 0 || place > rank)
    throw OnnxUnsupported("axis " + std::to_string(axis) + " of " + std::to_string(rank) +
                          " dimensions");
  const OnnxPlain plain = as_plain(value).plain;
  std::vector<int> before;
  for (std::int64_t i = 0; i < place; ++i) {
    const std::vector<int>& dim = plain.dims[static_cast<std::size_t>(i)];
    before.insert(before.end(), dim.begin(), dim.end());
  }
  const std::int64_t rows = extent_of(plain, before);
  if (rows == kOnnxUnknown)
    throw OnnxUnsupported("before axis " + std::to_string(axis) + " of " +
                          onnx_shape_text(value.shape) + ", expected known extents");
  reshape_any(op, {rows, place == rank ? 1 : -1});
}

void translate_reshape(OnnxOperator& op) {
  if (keep_tokens(op)) return;
  const auto* known = std::get_if<OnnxActivation>(&op.input(0));
  if (known == nullptr) return reshape_any(op, wanted_shape(op, shape_of(op.constant(0))));
  OnnxActivation value = *known;
  const Numbers to = wanted_shape(op, value.shape);
  // Two unknown extents may both differ from those of the value, one alone cannot.
  if (to == value.shape && std::ranges::count(to, kOnnxUnknown) < 2)
    return op.set(std::move(value));
  if (value.layout == OnnxActivation::Layout::kPlain) return reshape_any(op, to);
  if (adds_pixels(value.shape, to)) {
    value.shape.insert(value.shape.end(), {1, 1});
    return op.set(std::move(value));
  }
  if (regroup(op, value, to)) return;
  if (is_flattening(value, to)) return set_flattened(op);
  reshape_any(op, to);
}

// Channels to pixels, or back: places in a block become two of the dimensions, which join others.
void translate_blocks(OnnxOperator& op) {
  const bool to_pixels = op.node().type == "DepthToSpace";
  const std::string mode = op.text("mode", "DCR");
  const std::int64_t block = op.integer("blocksize", 0);
  OnnxActivation value = plain_input(op, 0);
  const Numbers shape = value.shape;
  const bool fits = shape.size() == 4 && block >= 1 && block <= kMaxOnnxExtent &&
                    std::ranges::none_of(shape.begin() + 1, shape.end(), is_onnx_symbol) &&
                    (to_pixels ? shape[1] % block == 0 && shape[1] / block % block == 0
                               : shape[2] % block == 0 && shape[3] % block == 0);
  if (!fits || (mode != "DCR" && mode != "CRD"))
    throw OnnxUnsupported("mode '" + mode + "' with blocks of " + std::to_string(block) + " of " +
                          onnx_shape_text(shape) +
                          ", expected DCR or CRD, known extents and whole blocks");
  const std::int64_t c = shape[1], h = shape[2], w = shape[3];
  const bool channels_first = mode == "CRD";
  const Numbers cut = !to_pixels       ? Numbers{shape[0], c, h / block, block, w / block, block}
                      : channels_first ? Numbers{shape[0], c / block / block, block, block, h, w}
                                       : Numbers{shape[0], block, block, c / block / block, h, w};
  value = materialized(op, std::move(value));
  if (!reshape_plain(value.plain, cut, op.all().fixed_batch))
    throw OnnxUnsupported("blocks of " + onnx_shape_text(shape));
  const auto dims = value.plain.dims;
  const auto joined = [&](const std::vector<std::size_t>& parts) {
    std::vector<int> all;
    for (const std::size_t part : parts)
      all.insert(all.end(), dims[part].begin(), dims[part].end());
    return all;
  };
  if (!to_pixels)
    value.plain.dims = {dims[0], joined({3, 5, 1}), dims[2], dims[4]};
  else if (channels_first)
    value.plain.dims = {dims[0], dims[1], joined({4, 2}), joined({5, 3})};
  else
    value.plain.dims = {dims[0], dims[3], joined({4, 1}), joined({5, 2})};
  set_plain(op, std::move(value));
}

void translate_squeeze(OnnxOperator& op) {
  OnnxActivation value = plain_input(op, 0);
  const std::size_t rank = value.plain.dims.size();
  std::vector<bool> is_removed(rank);
  for (std::int64_t axis : op.has_input(1) ? op.numbers(1) : Numbers{})
    is_removed[dimension_of(axis, rank)] = true;
  const auto dims = value.plain.dims;
  value.plain.dims.clear();
  for (std::size_t i = 0; i < rank; ++i) {
    if (is_removed[i] && !dims[i].empty())
      throw OnnxUnsupported("axis " + std::to_string(i) + " of " + onnx_shape_text(value.shape) +
                            ", expected one of extent 1");
    if (!(op.has_input(1) ? is_removed[i] : dims[i].empty())) value.plain.dims.push_back(dims[i]);
  }
  set_plain(op, std::move(value));
}

void translate_unsqueeze(OnnxOperator& op) {
  OnnxActivation value = plain_input(op, 0);
  Numbers axes = op.numbers(1);
  const std::size_t rank = value.plain.dims.size() + axes.size();
  for (std::int64_t& axis : axes) axis = static_cast<std::int64_t>(dimension_of(axis, rank));
  std::ranges::sort(axes);
  for (const std::int64_t axis : axes) {
    if (axis > std::ssize(value.plain.dims)) throw OnnxUnsupported("axes that are named twice");
    value.plain.dims.insert(value.plain.dims.begin() + axis, std::vector<int>{});
  }
  set_plain(op, std::move(value));
}

}  // namespace

std::vector<OnnxOperatorRow> onnx_shape_operators() {
  return {{"Constant", fold_constant},
          {"Identity", fold_identity},
          {"Shape", fold_shape},
          {"Unsqueeze", translate_unsqueeze},
          {"Squeeze", translate_squeeze},
          {"Transpose", translate_transpose},
          {"Flatten", translate_flatten},
          {"Reshape", translate_reshape},
          {"DepthToSpace", translate_blocks},
          {"SpaceToDepth", translate_blocks}};
}

}  // namespace models
