// Arithmetic on shapes, which exports of PyTorch contain before Reshape, and constants.
#include <algorithm>
#include <numeric>
#include <string>
#include <variant>

#include "models/onnx/onnx_operator.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// Returns the place between 0 and `count` that a begin or an end names; below 0 it counts from the
// end.
std::int64_t place_in(std::int64_t count, std::int64_t at) {
  return std::clamp<std::int64_t>(at < 0 ? at + count : at, 0, count);
}

bool is_symbol(std::int64_t value) { return value == kOnnxBatch || value == kOnnxUnknown; }

void fold_constant(OnnxOperator& op) {
  if (const io::ReadAttribute* value = op.attribute("value"))
    if (const auto* tensor = std::get_if<io::StoredTensor>(&value->value))
      return op.set(OnnxConstant{.tensor = tensor});
  if (op.attribute("value_int") != nullptr)
    return op.set(OnnxNumbers{{op.integer("value_int", 0)}});
  if (const auto list = op.integers("value_ints"); list && list->size() <= kMaxOnnxNumbers)
    return op.set(OnnxNumbers{*list});
  if (op.attribute("value_float") != nullptr) return op.set(op.real("value_float", 0));
  throw OnnxUnsupported("a constant that is no tensor, float, integer or short list of integers");
}

void fold_identity(OnnxOperator& op) { op.set(op.input(0)); }

void fold_cast(OnnxOperator& op) {
  const std::int64_t to = op.integer("to", 0);
  const bool to_float = to == 1 || to == 11, to_integer = to == 6 || to == 7;
  const bool fits = op.has_numbers(0) ? to_integer : to_float;
  if (!fits)
    throw OnnxUnsupported("a conversion to ONNX's type " + std::to_string(to) +
                          ", expected 1 (float) or 11 (double)");
  op.set(op.input(0));
}

void fold_shape(OnnxOperator& op) {
  const auto* known = std::get_if<OnnxActivation>(&op.input(0));
  const Numbers shape = known != nullptr ? known->shape : shape_of(op.constant(0));
  const auto rank = static_cast<std::int64_t>(shape.size());
  const std::int64_t begin = place_in(rank, op.integer("start", 0)),
                     end = place_in(rank, op.integer("end", rank));
  op.set(
      OnnxNumbers{begin < end ? Numbers(shape.begin() + begin, shape.begin() + end) : Numbers()});
}

void fold_gather(OnnxOperator& op) {
  if (!op.has_numbers(0))
    throw OnnxUnsupported("it selects rows of a tensor; expected entries of a shape");
  const Numbers from = op.numbers(0);
  Numbers chosen;
  for (std::int64_t at : op.numbers(1)) {
    const auto count = std::ssize(from);
    if (at < -count || at >= count)
      throw OnnxUnsupported("entry " + std::to_string(at) + " of " + std::to_string(count));
    chosen.push_back(from[static_cast<std::size_t>(at < 0 ? at + count : at)]);
  }
  op.set(OnnxNumbers{std::move(chosen)});
}

// The part [first, first + count) of the channels.
OnnxActivation channels_of(OnnxOperator& op, OnnxActivation value, std::int64_t first,
                           std::int64_t count) {
  value.layer = op.add_layer("slice", {value.layer},
                             {{"first", std::to_string(first)}, {"count", std::to_string(count)}});
  value.shape[1] = count;
  return value;
}

// Returns the channels, which the axis must be.
std::int64_t expect_channels(const OnnxActivation& value, std::int64_t axis) {
  const bool is_plain = value.layout == OnnxActivation::Layout::kImage ||
                        value.layout == OnnxActivation::Layout::kVector;
  if (!is_plain || value.shape.size() < 2 || (axis != 1 && axis != 1 - std::ssize(value.shape)))
    throw OnnxUnsupported("axis " + std::to_string(axis) + " of " + onnx_shape_text(value.shape) +
                          ", expected 1: the channels");
  if (value.shape[1] < 1)
    throw OnnxUnsupported(onnx_shape_text(value.shape) + ", expected a known number of channels");
  return value.shape[1];
}

void translate_split(OnnxOperator& op) {
  const OnnxActivation value = op.activation(0);
  const std::int64_t channels = expect_channels(value, op.integer("axis", 0));
  const std::vector<std::string>& outputs = op.node().outputs;
  const std::int64_t parts = std::ssize(outputs), size = (channels + parts - 1) / parts;
  Numbers counts = op.has_input(1) ? op.numbers(1) : op.integers("split").value_or(Numbers{});
  if (counts.empty())  // equal ones; the last one may be smaller
    for (std::int64_t left = channels; left > 0; left -= size)
      counts.push_back(std::min(size, left));
  std::int64_t first = 0;
  if (std::ssize(counts) != parts || std::ranges::min(counts) < 1 ||
      std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) != channels)
    throw OnnxUnsupported("parts " + onnx_shape_text(counts) + " of " +
                          onnx_shape_text(value.shape) + ", expected all " +
                          std::to_string(channels) + " channels in " + std::to_string(parts) +
                          " parts");
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    op.all().values.set(outputs[i], channels_of(op, value, first, counts[i]));
    first += counts[i];
  }
}

void slice_channels(OnnxOperator& op) {
  const OnnxActivation value = op.activation(0);
  const Numbers begins = op.numbers(1), ends = op.numbers(2);
  const Numbers axes = op.has_input(3) ? op.numbers(3) : Numbers{0};
  const Numbers steps = op.has_input(4) ? op.numbers(4) : Numbers{1};
  if (begins.size() != 1 || ends.size() != 1 || axes.size() != 1 || steps != Numbers{1} ||
      is_symbol(begins[0]) || is_symbol(ends[0]))
    throw OnnxUnsupported("a part of a tensor; expected channels that follow each other");
  const std::int64_t channels = expect_channels(value, axes[0]);
  const std::int64_t first = place_in(channels, begins[0]),
                     count = place_in(channels, ends[0]) - first;
  if (count < 1) throw OnnxUnsupported("a part without channels");
  if (count == channels) return op.set(value);
  op.set(channels_of(op, value, first, count));
}

void fold_slice(OnnxOperator& op) {
  if (std::holds_alternative<OnnxActivation>(op.input(0))) return slice_channels(op);
  if (!op.has_numbers(0)) throw OnnxUnsupported("a part of a tensor; expected one of a shape");
  const Numbers from = op.numbers(0), begins = op.numbers(1), ends = op.numbers(2);
  const Numbers steps = op.has_input(4) ? op.numbers(4) : Numbers{1};
  if (begins.size() != 1 || ends.size() != 1 || steps != Numbers{1})
    throw OnnxUnsupported("expected a part of a list with step 1");
  const auto place = [&](std::int64_t at) {
    if (is_symbol(at)) throw OnnxUnsupported("it ends at an unknown place");
    return place_in(std::ssize(from), at);
  };
  const std::int64_t begin = place(begins[0]), end = place(ends[0]);
  op.set(OnnxNumbers{begin < end ? Numbers(from.begin() + begin, from.begin() + end) : Numbers()});
}

void fold_add_axis(OnnxOperator& op) {
  if (op.has_numbers(0)) return op.set(OnnxNumbers{op.numbers(0)});
  OnnxActivation value = op.activation(0);
  const Numbers axes = op.numbers(1);
  if (value.shape.size() != 2 || (axes != Numbers{2, 3} && axes != Numbers{-2, -1}))
    throw OnnxUnsupported("expected [batch, channels] to [batch, channels, 1, 1]");
  value.shape.insert(value.shape.end(), {1, 1});
  op.set(std::move(value));
}

void fold_difference(OnnxOperator& op) {
  if (!fold_numbers(op)) throw OnnxUnsupported("a difference of tensors; no layer does this");
}

void fold_quotient(OnnxOperator& op) {
  if (!fold_numbers(op))
    throw OnnxUnsupported(
        "a quotient of tensors; no layer does this (the data set's preparation normalizes pixels)");
}

// Returns kOnnxUnknown for what cannot be computed.
std::int64_t computed(const std::string& type, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (is_symbol(a) || is_symbol(b)) return kOnnxUnknown;
  if (type == "Div") return b == 0 || b == -1 ? kOnnxUnknown : a / b;
  const bool overflows = type == "Add"   ? __builtin_add_overflow(a, b, &result)
                         : type == "Sub" ? __builtin_sub_overflow(a, b, &result)
                                         : __builtin_mul_overflow(a, b, &result);
  return overflows ? kOnnxUnknown : result;
}

// Channels in groups, as ShuffleNet transposes them.
void shuffle_groups(OnnxOperator& op, OnnxActivation value) {
  if (value.layout != OnnxActivation::Layout::kGroups ||
      op.integers("perm") != Numbers{0, 2, 1, 3, 4})
    throw OnnxUnsupported("perm " + onnx_shape_text(op.integers("perm").value_or(Numbers{})) +
                          " of " + onnx_shape_text(value.shape) +
                          ", expected [0, 2, 1, 3, 4] of channels in groups");
  value.layer =
      op.add_layer("shuffle_channels", {value.layer}, {{"groups", std::to_string(value.shape[1])}});
  std::swap(value.shape[1], value.shape[2]);
  value.layout = OnnxActivation::Layout::kShuffled;
  op.set(std::move(value));
}

void fold_transpose(OnnxOperator& op) {
  if (const auto* known = std::get_if<OnnxActivation>(&op.input(0)))
    return shuffle_groups(op, *known);
  OnnxConstant matrix = op.constant(0);
  if (matrix.tensor->shape.size() != 2 || op.integers("perm") != Numbers{1, 0})
    throw OnnxUnsupported("expected the transposition of a parameter of two dimensions");
  matrix.transposed = !matrix.transposed;
  op.set(matrix);
}

void set_flattened(OnnxOperator& op) { op.set(flattened(op, op.activation(0))); }

void translate_flatten(OnnxOperator& op) {
  const std::int64_t axis = op.integer("axis", 1);
  const auto rank = std::ssize(op.activation(0).shape);
  if (axis != 1 && axis != 1 - rank)
    throw OnnxUnsupported("axis " + std::to_string(axis) + ", expected 1");
  set_flattened(op);
}

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
  using Layout = OnnxActivation::Layout;
  Numbers shape = value.shape;
  if (value.layout == Layout::kImage && shape.size() == 4 && to.size() == 5 && to[1] > 0 &&
      shape[1] > 0 && shape[1] % to[1] == 0) {
    shape.insert(shape.begin() + 1, to[1]);
    shape[2] /= to[1];
    value.layout = Layout::kGroups;
  } else if (value.layout == Layout::kGroups || value.layout == Layout::kShuffled) {
    shape[1] *= shape[2];
    shape.erase(shape.begin() + 2);
    value.layout = Layout::kImage;
  } else {
    return false;
  }
  if (!is_shape(to, shape)) return false;
  value.shape = std::move(shape);
  op.set(std::move(value));
  return true;
}

void translate_reshape(OnnxOperator& op) {
  if (op.has_numbers(0)) return op.set(OnnxNumbers{op.numbers(0)});
  const auto* known = std::get_if<OnnxActivation>(&op.input(0));
  if (known == nullptr) throw OnnxUnsupported("it reshapes a constant; expected a layer's output");
  OnnxActivation value = *known;
  const Numbers to = wanted_shape(op, value.shape);
  if (to == value.shape) return op.set(std::move(value));
  if (adds_pixels(value.shape, to)) {
    value.shape.insert(value.shape.end(), {1, 1});
    return op.set(std::move(value));
  }
  if (regroup(op, value, to)) return;
  if (!is_flattening(value, to))
    throw OnnxUnsupported(onnx_shape_text(value.shape) + " to " + onnx_shape_text(to) +
                          "; expected [batch, -1]: a vector for each sample");
  set_flattened(op);
}

void translate_squeeze(OnnxOperator& op) {
  if (op.has_numbers(0)) return op.set(OnnxNumbers{op.numbers(0)});
  const OnnxActivation value = op.activation(0);
  const Numbers axes = op.has_input(1) ? op.numbers(1) : Numbers{};
  const bool last = axes == Numbers{2, 3} || axes == Numbers{-2, -1} || axes == Numbers{-1, -2};
  if (!last || value.layout != OnnxActivation::Layout::kVector || value.shape.size() != 4)
    throw OnnxUnsupported(onnx_shape_text(value.shape) +
                          ", expected axes 2 and 3 of [batch, channels, 1, 1]");
  set_flattened(op);
}

}  // namespace

bool fold_numbers(OnnxOperator& op) {
  const std::string& type = op.node().type;
  const std::size_t count = op.node().inputs.size();
  for (std::size_t i = 0; i < count; ++i)
    if (!op.has_numbers(i)) return false;
  if (count == 0) throw OnnxUnsupported("it has no inputs");
  Numbers all = op.numbers(0);
  for (std::size_t i = 1; i < count; ++i) {
    Numbers next = op.numbers(i);
    if (type == "Concat") {
      all.insert(all.end(), next.begin(), next.end());
      if (all.size() > kMaxOnnxNumbers) throw OnnxUnsupported("a list that is too long");
      continue;
    }
    if (all.size() == 1) all.resize(next.size(), all[0]);
    if (next.size() == 1) next.resize(all.size(), next[0]);
    if (all.size() != next.size()) throw OnnxUnsupported("lists of different lengths");
    for (std::size_t k = 0; k < all.size(); ++k) all[k] = computed(type, all[k], next[k]);
  }
  op.set(OnnxNumbers{std::move(all)});
  return true;
}

std::vector<OnnxOperatorRow> onnx_shape_operators() {
  return {{"Constant", fold_constant},
          {"Identity", fold_identity},
          {"Cast", fold_cast},
          {"Shape", fold_shape},
          {"Gather", fold_gather},
          {"Slice", fold_slice},
          {"Unsqueeze", fold_add_axis},
          {"Squeeze", translate_squeeze},
          {"Sub", fold_difference},
          {"Div", fold_quotient},
          {"Transpose", fold_transpose},
          {"Flatten", translate_flatten},
          {"Reshape", translate_reshape},
          {"Split", translate_split}};
}

}  // namespace models
