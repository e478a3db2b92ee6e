// Products of two outputs of layers, softmax, and attention, which consists of these.
#include <algorithm>
#include <cmath>
#include <optional>

#include "io/base/text/text_parts.h"
#include "models/onnx_import/onnx_operators.h"
#include "models/onnx_translation/onnx_plain.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// The axes of the dimensions before the last two, without that of the samples, in their order in
// the layer's output.
std::vector<int> leading_axes(const OnnxPlain& plain) {
  std::vector<int> axes;
  for (std::size_t i = 0; i + 2 < plain.dims.size(); ++i)
    for (const int axis : plain.dims[i])
      if (axis != kOnnxBatchAxis) axes.push_back(axis);
  return axes;
}

// The axes of `b` that stand for these of `a` in the dimensions before the last two.
std::vector<int> matching(const OnnxPlain& a, const std::vector<int>& axes, const OnnxPlain& b) {
  std::vector<int> found;
  for (const int axis : axes)
    for (std::size_t i = 0; i + 2 < a.dims.size(); ++i)
      for (std::size_t k = 0; k < a.dims[i].size(); ++k)
        if (a.dims[i][k] == axis) found.push_back(b.dims[i][k]);
  return found;
}

// Gives both values as many dimensions, as NumPy does. One that is the same for all samples gets
// their dimension.
void expand_product(OnnxPlain& x, OnnxPlain& y) {
  for (OnnxPlain* each : {&x, &y}) {
    const OnnxPlain& other = each == &x ? y : x;
    if (each->dims.size() >= 2 && each->dims.size() < other.dims.size())
      each->dims.insert(each->dims.begin(), other.dims.size() - each->dims.size(), {});
    if (each->dims.size() != other.dims.size() || std::ranges::any_of(each->dims, contains_samples))
      continue;
    for (std::size_t i = 0; i + 2 < each->dims.size(); ++i)
      if (each->dims[i].empty() && other.dims[i] == std::vector<int>{kOnnxBatchAxis})
        each->dims[i] = other.dims[i];
  }
}

// Whether x has several entries of dimension i, and y one for all of them.
bool expands_second(const OnnxPlain& x, const OnnxPlain& y, std::size_t i) {
  return y.dims[i].empty() && !x.dims[i].empty() && !contains_samples(x.dims[i]);
}

void check_product(const OnnxActivation& a, const OnnxActivation& b, OnnxPlain& x, OnnxPlain& y) {
  const std::size_t rank = x.dims.size();
  bool fits = rank == y.dims.size() && rank >= 2;
  for (std::size_t i = 0; fits && i + 2 < rank; ++i)
    fits = expands_second(x, y, i) || refine_plain(x, y, i);
  fits = fits && extent_of(x, x.dims[rank - 1]) == extent_of(y, y.dims[rank - 2]);
  for (std::size_t i = 0; fits && i < 2; ++i)
    fits = !contains_samples(x.dims[rank - 1 - i]) && !contains_samples(y.dims[rank - 1 - i]);
  if (!fits)
    throw OnnxUnsupported("a product of " + onnx_shape_text(a.shape) + " and " +
                          onnx_shape_text(b.shape) +
                          ", expected [..., m, k] and [..., k, n] with the same dimensions before "
                          "them, or 1 in one of the two");
}

// The layer of this kind that the value is the output of; -1: another one.
int layer_of_kind(OnnxOperator& op, int layer, const char* kind) {
  return layer >= 0 && op.all().layers.at(layer).kind == kind ? layer : -1;
}

// The largest head that attention accepts on a CUDA device.
constexpr std::int64_t kMaxHead = 256;

struct Attention {
  OnnxActivation q;  // of one layer, with axes [t..., 3, heads..., size...]
  // Keys and values of layers of their own, like q with axes [t..., heads..., size...]; else none.
  std::vector<OnnxActivation> apart;
  std::int64_t heads = 0, size = 0;
  double dropout = 0;
  int entries = -1;  // the axis of 3
  bool is_causal = false;
};

// The axis whose entry 0, 1 or 2 is selected, and no other; -1: there is none.
int entry_axis(const OnnxPlain& plain, std::int64_t entry) {
  int found = -1;
  for (std::size_t i = 0; i < plain.axes.size(); ++i) {
    if (plain.axes[i].entry < 0) continue;
    if (found >= 0 || plain.axes[i].entry != entry || plain.axes[i].extent != 3) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

bool same_layout(const OnnxPlain& a, const OnnxPlain& b) {
  return a.dims == b.dims &&
         std::ranges::equal(a.axes, b.axes, {}, &OnnxPlain::Axis::extent, &OnnxPlain::Axis::extent);
}

bool is_whole(const OnnxPlain& plain) {
  return std::ranges::all_of(plain.axes,
                             [](const OnnxPlain::Axis& axis) { return axis.entry < 0; });
}

// The layer of scores whose softmax the value is, perhaps with a mask and dropout; -1: it is
// another value.
int scores_of(OnnxOperator& op, const OnnxActivation& weights, Attention& found) {
  const OnnxLayerList& layers = op.all().layers;
  int layer = weights.layer;
  if (layer_of_kind(op, layer, "dropout") >= 0) {
    found.dropout = std::stod(layers.at(layer).options.at(0).second);
    layer = layers.at(layer).inputs[0];
  }
  if (layer_of_kind(op, layer, "softmax") < 0 || weights.plain.scale != 1) return -1;
  layer = layers.at(layer).inputs[0];
  const auto causal = op.all().causal.find(layer);
  found.is_causal = causal != op.all().causal.end();
  return found.is_causal ? causal->second : layer;
}

// Whether the axes are [t..., 3, heads..., size...] in this order, or without the 3; sets their
// extents.
bool is_attention_order(const OnnxPlain& q, Attention& found) {
  const std::size_t rank = q.dims.size();
  std::vector<int> order = q.dims[rank - 2], heads = leading_axes(q);
  const std::vector<int>& sizes = q.dims[rank - 1];
  if (contains_samples(order) || contains_samples(sizes)) return false;
  found.heads = extent_of(q, heads);
  found.size = extent_of(q, sizes);
  if (found.entries >= 0) order.push_back(found.entries);
  order.insert(order.end(), heads.begin(), heads.end());
  order.insert(order.end(), sizes.begin(), sizes.end());
  return std::ranges::is_sorted(order) && order.size() == q.axes.size() && found.heads > 0;
}

// Whether the three are side by side in the output of one layer; sets the axis of 3.
bool are_of_one_layer(const OnnxActivation& q, const OnnxActivation& k, const OnnxActivation& v,
                      Attention& found) {
  found.entries = entry_axis(q.plain, 0);
  return found.entries >= 0 && q.layer == k.layer && q.layer == v.layer &&
         entry_axis(k.plain, 1) == found.entries && entry_axis(v.plain, 2) == found.entries;
}

// softmax(q k^T) v, with q, k and v side by side in the output of one layer, or if each position
// reads earlier ones alone, of several layers. `weights` is the softmax.
std::optional<Attention> attention_of(OnnxOperator& op, const OnnxActivation& weights,
                                      const OnnxActivation& v) {
  Attention found;
  const auto product = op.all().products.find(scores_of(op, weights, found));
  if (product == op.all().products.end() || v.layer < 0 ||
      !has_same_places(weights.plain, product->second.output))
    return std::nullopt;
  auto [q, k, scores] = product->second;
  const std::size_t rank = q.plain.dims.size();
  if (rank < 3 || k.plain.dims.size() != rank) return std::nullopt;
  std::swap(k.plain.dims[rank - 1], k.plain.dims[rank - 2]);
  const bool is_one = are_of_one_layer(q, k, v, found);
  if (!is_one) found.entries = -1;
  if (!same_layout(q.plain, k.plain) || !same_layout(q.plain, v.plain) || v.plain.scale != 1 ||
      !is_attention_order(q.plain, found))
    return std::nullopt;
  const bool are_apart = found.is_causal && is_whole(q.plain) && is_whole(k.plain) &&
                         is_whole(v.plain) && found.size <= kMaxHead;
  if (!is_one && !are_apart) return std::nullopt;
  const double wanted = 1 / std::sqrt(static_cast<double>(found.size));
  if (std::abs(q.plain.scale * k.plain.scale - wanted) > 1e-6 * wanted) return std::nullopt;
  found.q = std::move(q);
  if (!is_one) found.apart = {std::move(k), v};
  return found;
}

// Queries, keys and values side by side, as the layers of attention read them.
OnnxActivation projection_of(OnnxOperator& op, Attention& found) {
  OnnxActivation& q = found.q;
  const std::vector<int>& rows = q.plain.dims[q.plain.dims.size() - 2];
  std::vector<int> positions, rest;
  for (int axis = 0; axis < static_cast<int>(q.plain.axes.size()); ++axis)
    (std::ranges::find(rows, axis) != rows.end() ? positions : rest).push_back(axis);
  if (found.entries >= 0) q.plain.axes[static_cast<std::size_t>(found.entries)].entry = -1;
  q.plain.scale = 1;
  OnnxActivation value = ordered(op, q, {positions, rest});
  std::vector<int> layers{value.layer};
  for (OnnxActivation& part : found.apart) {
    part.plain.scale = 1;
    layers.push_back(ordered(op, part, {positions, rest}).layer);
  }
  if (layers.size() > 1) value.layer = op.add_layer("concat", layers);
  return value;
}

void set_attention(OnnxOperator& op, Attention found) {
  OnnxActivation value = projection_of(op, found);
  std::vector<std::pair<std::string, std::string>> options{{"heads", std::to_string(found.heads)}};
  if (found.dropout > 0) options.emplace_back("dropout", base::shortest_text(found.dropout));
  value.layer = op.add_layer(found.is_causal ? "causal_self_attention" : "self_attention",
                             {value.layer}, std::move(options));
  value.plain.stored[1] = found.heads * found.size;
  if (found.entries >= 0) remove_axis(value.plain, found.entries);
  set_plain(op, std::move(value));
}

// The softmax of the classes at the end, perhaps of each position, which the loss contains.
bool is_last_softmax(OnnxOperator& op) {
  const auto* value = std::get_if<OnnxActivation>(&op.input(0));
  const std::int64_t axis = op.integer("axis", -1);
  if (value == nullptr || op.node().outputs[0] != op.all().graph.outputs[0].name) return false;
  const std::int64_t rank = std::ssize(value->shape), tokens = op.all().tokens;
  const bool is_last = tokens > 0 && rank == 3 && value->shape[1] == tokens;
  const std::int64_t classes = is_last ? 2 : 1;
  return rank >= 2 && rank <= 4 && (axis == classes || axis == classes - rank);
}

void translate_softmax(OnnxOperator& op) {
  if (is_last_softmax(op)) {
    op.all().notes.push_back(op.node().type +
                             " at the end is left out: the loss of classes contains it");
    op.all().ends_in_softmax = true;
    return op.set(op.activation(0));
  }
  if (op.node().type != "Softmax")
    throw OnnxUnsupported("expected it at the end, over the classes");
  OnnxActivation value = plain_input(op, 0);
  const std::size_t dim = dimension_of(op.integer("axis", -1), value.plain.dims.size());
  if (contains_samples(value.plain.dims[dim])) throw OnnxUnsupported("over the samples");
  value = with_last(op, value, value.plain.dims[dim]);
  value.layer = op.add_layer("softmax", {value.layer});
  set_plain(op, std::move(value));
}

// Whether some dimension expands x, and none expands y.
bool expands_first(const OnnxPlain& x, const OnnxPlain& y) {
  bool expands = false;
  for (std::size_t i = 0; x.dims.size() == y.dims.size() && i + 2 < x.dims.size(); ++i) {
    if (expands_second(x, y, i)) return false;
    expands = expands || expands_second(y, x, i);
  }
  return expands;
}

void turn(OnnxPlain& matrix) { std::swap(matrix.dims.end()[-1], matrix.dims.end()[-2]); }

// x y is the transposition of that of y times that of x.
void set_transposed_product(OnnxOperator& op, OnnxActivation x, OnnxActivation y) {
  turn(x.plain);
  turn(y.plain);
  set_product(op, y, x);
  OnnxActivation value =
      as_plain(std::get<OnnxActivation>(*op.all().values.find(op.node().outputs[0])));
  turn(value.plain);
  set_plain(op, std::move(value));
}

// Replaces the axes of the last dimension, which are the last ones, by those of columns of `from`.
void replace_columns(OnnxPlain& plain, const OnnxPlain& from, const std::vector<int>& columns) {
  std::vector<int>& dim = plain.dims.back();
  plain.axes.resize(plain.axes.size() - dim.size());
  dim.clear();
  plain.stored.back() = extent_of(from, columns);
  for (const int column : columns) {
    dim.push_back(static_cast<int>(plain.axes.size()));
    plain.axes.push_back({from.axes[static_cast<std::size_t>(column)].extent});
  }
}

// A matrix that is computed from parameters, e.g. a part of one, is the same for all samples.
bool is_shared_matrix(const OnnxPlain& value, const OnnxPlain& matrix) {
  return matrix.dims.size() == 2 && std::ranges::none_of(matrix.dims, contains_samples) &&
         value.dims.size() >= 2 && std::ranges::any_of(value.dims, contains_samples) &&
         !contains_samples(value.dims.back()) &&
         extent_of(value, value.dims.back()) == extent_of(matrix, matrix.dims[0]);
}

// All dimensions of the value but its last one are rows.
void translate_shared_product(OnnxOperator& op, OnnxActivation value, OnnxActivation matrix) {
  value = materialized(op, std::move(value));
  matrix = materialized(op, std::move(matrix));
  const std::vector<int> inner = value.plain.dims.back();
  OnnxGroups groups{{}, inner};
  for (int axis = 0; axis < static_cast<int>(value.plain.axes.size()); ++axis)
    if (std::ranges::find(inner, axis) == inner.end()) groups[0].push_back(axis);
  value = ordered(op, std::move(value), groups);
  const std::vector<int> rows = matrix.plain.dims[0], columns = matrix.plain.dims[1];
  const bool transposed = !rows.empty() && !columns.empty() && rows.back() > columns.back();
  const OnnxActivation factor =
      ordered(op, matrix, transposed ? OnnxGroups{columns, rows} : OnnxGroups{rows, columns});
  std::vector<std::pair<std::string, std::string>> options;
  if (transposed) options.emplace_back("transpose_second", "true");
  value.layer = op.add_layer("matmul", {value.layer, factor.layer}, std::move(options));
  replace_columns(value.plain, matrix.plain, columns);
  set_plain(op, std::move(value));
}

}  // namespace

void translate_product(OnnxOperator& op) {
  set_product(op, plain_input(op, 0), plain_input(op, 1));
}

void set_product(OnnxOperator& op, const OnnxActivation& a, const OnnxActivation& b) {
  if (is_shared_matrix(a.plain, b.plain)) return translate_shared_product(op, a, b);
  if (auto attention = attention_of(op, a, b)) return set_attention(op, std::move(*attention));
  OnnxActivation x = a, y = b;
  expand_product(x.plain, y.plain);
  if (expands_first(x.plain, y.plain)) return set_transposed_product(op, x, y);
  check_product(a, b, x.plain, y.plain);
  const std::size_t rank = x.plain.dims.size();
  std::vector<int> lead, rows;  // entries that share a matrix are rows
  for (std::size_t i = 0; i + 2 < rank; ++i)
    for (const int axis : x.plain.dims[i])
      if (axis != kOnnxBatchAxis) (y.plain.dims[i].empty() ? rows : lead).push_back(axis);
  std::ranges::sort(lead);
  std::ranges::sort(rows);
  const std::vector<int> other = matching(x.plain, lead, y.plain);
  rows.insert(rows.end(), x.plain.dims[rank - 2].begin(), x.plain.dims[rank - 2].end());
  const std::vector<int> inner = y.plain.dims[rank - 2], columns = y.plain.dims[rank - 1];
  const bool transposed = !inner.empty() && !columns.empty() && inner.back() > columns.back();
  const double scale = x.plain.scale * y.plain.scale;
  x.plain.scale = y.plain.scale = 1;
  OnnxGroups first{rows, x.plain.dims[rank - 1]}, second{inner, columns};
  if (transposed) std::swap(second[0], second[1]);
  if (!lead.empty()) first.insert(first.begin(), lead), second.insert(second.begin(), other);
  OnnxActivation value = ordered(op, x, first);
  const OnnxActivation factor = ordered(op, y, second);
  std::vector<std::pair<std::string, std::string>> options;
  if (transposed) options.emplace_back("transpose_second", "true");
  if (scale != 1) options.emplace_back("scale", base::shortest_text(scale));
  value.layer = op.add_layer("matmul", {value.layer, factor.layer}, std::move(options));
  replace_columns(value.plain, y.plain, columns);
  op.all().products[value.layer] = {a, b, value.plain};
  set_plain(op, std::move(value));
}

std::vector<OnnxOperatorRow> onnx_general_operators() {
  std::vector<OnnxOperatorRow> rows = onnx_sums();
  rows.push_back({"Softmax", translate_softmax});
  rows.push_back({"LogSoftmax", translate_softmax});
  return rows;
}

}  // namespace models
