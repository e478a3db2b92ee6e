// Sums and products of any tensors, means and maxima, and functions of their elements.
#include <algorithm>
#include <cmath>
#include <optional>

#include "io/base/text/text_format.h"
#include "models/onnx_import/onnx_plain.h"
#include "models/onnx_import/onnx_products.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// The dimension of the numbers that a bias of this layer has; nothing if it has one, or the value
// is no longer the layer's output as it is.
std::optional<std::size_t> bias_dimension(const OnnxListedLayer& layer, const OnnxPlain& plain) {
  const std::size_t rank = plain.dims.size();
  const bool is_dense = layer.kind == "dense" && rank >= 2,
             is_conv = layer.kind == "conv2d" && rank == 4;
  if ((!is_dense && !is_conv) || layer.arrays.size() != 1 || plain.scale != 1) return std::nullopt;
  const std::size_t dim = is_dense ? rank - 1 : 1;
  if (stored_groups(plain).back() != plain.dims[dim]) return std::nullopt;
  return dim;
}

// A constant that is added to the output of a layer without a bias is its bias: Linear as MatMul
// and Add. Returns false for other sums.
bool add_bias(OnnxOperator& op, std::size_t index) {
  const auto* stored = std::get_if<OnnxConstant>(&op.input(index));
  const auto* found = std::get_if<OnnxActivation>(&op.input(1 - index));
  if (stored == nullptr || !is_trained_weight(*stored) || found == nullptr ||
      !is_only_reader(op, 1 - index))
    return false;
  const OnnxPlain plain = as_plain(*found).plain;
  const auto dim = bias_dimension(op.all().layers.at(found->layer), plain);
  if (!dim) return false;
  const std::int64_t channels = plain.stored.back();
  const OnnxConstant bias = op.constant(index);
  if (is_apart(op.all(), bias) ||
      !is_bias_of(op, op.all(), op.all().layers.at(found->layer).arrays[0].from, bias))
    return false;
  Numbers shape = shape_of(bias), wanted(plain.dims.size() - *dim, 1);
  if (shape.size() > plain.dims.size()) return false;
  wanted[0] = channels;
  while (shape.size() > wanted.size() && shape[0] == 1) shape.erase(shape.begin());
  if (shape != wanted) return false;
  OnnxListedLayer& layer = op.all().layers.at(found->layer);
  for (auto& [key, text] : layer.options)
    if (key == "bias") text = "true";
  if (!initializer_name(layer.arrays[0].from).ends_with(".weight"))
    op.all().layers.rename(found->layer, initializer_name(bias));
  layer.arrays.push_back({"bias", bias, {channels}});
  tie_to_owner(op.all(), found->layer);
  op.set(OnnxActivation(*found));
  return true;
}

// The input as a number; nothing if it has several or more dimensions than the other input, or is
// no constant.
std::optional<double> scalar(OnnxOperator& op, std::size_t index) {
  const auto* constant = std::get_if<OnnxConstant>(&op.input(index));
  if (constant != nullptr && constant->tensor->count() != 1) return std::nullopt;
  if (op.is_activation(index) || !op.is_computable(index)) return std::nullopt;
  const OnnxTensor found = op.tensor(index);
  const auto* other = std::get_if<OnnxActivation>(&op.input(1 - index));
  if (other != nullptr && found.shape.size() > other->shape.size()) return std::nullopt;
  if (found.reals.size() == 1) return found.reals[0];
  if (found.integers.size() == 1 && !is_onnx_symbol(found.integers[0]))
    return static_cast<double>(found.integers[0]);
  return std::nullopt;
}

void add_scale_shift(OnnxOperator& op, OnnxActivation& value, double scale, double shift) {
  value.layer =
      op.add_layer("scale_shift", {value.layer},
                   {{"scale", io::shortest_text(scale)}, {"shift", io::shortest_text(shift)}});
}

void add_function(OnnxOperator& op, OnnxActivation& value, const std::string& function) {
  value.layer = op.add_layer("activation", {value.layer}, {{"function", "\"" + function + "\""}});
}

// A sum, product ... of a tensor and a number. Factors wait until a layer needs the numbers.
void combine_with_number(OnnxOperator& op, OnnxActivation value, double number, bool is_first) {
  const std::string& type = op.node().type;
  if (type == "Mul") {
    value.plain.scale *= number;
  } else if (type == "Div" && !is_first) {
    value.plain.scale /= number;
  } else if (type == "Div") {
    value = settled(op, std::move(value));
    add_function(op, value, "reciprocal");
    value.plain.scale = number;
  } else {
    const bool negates = type == "Sub" && is_first;
    const double scale = negates ? -value.plain.scale : value.plain.scale;
    value.plain.scale = 1;
    value = settled(op, std::move(value));
    add_scale_shift(op, value, scale, type == "Sub" && !is_first ? -number : number);
  }
  if (!std::isfinite(value.plain.scale)) throw OnnxUnsupported("a factor that is not finite");
  set_plain(op, std::move(value));
}

std::optional<double> option_of(const OnnxListedLayer& layer, const std::string& key) {
  for (const auto& [name, text] : layer.options)
    if (name == key) return std::stod(text);
  return std::nullopt;
}

bool is_near(std::optional<double> value, double wanted) {
  return value && std::abs(*value - wanted) < 1e-6;
}

// x (1 + erf(x / sqrt(2))), twice the GELU, as exporters write it for operator sets before 20.
bool set_gelu(OnnxOperator& op) {
  for (const std::size_t inner : {0U, 1U}) {
    OnnxActivation x = as_plain(std::get<OnnxActivation>(op.input(1 - inner)));
    const OnnxActivation sum = as_plain(std::get<OnnxActivation>(op.input(inner)));
    const OnnxLayerList& layers = op.all().layers;
    const auto input_of = [&](int layer, const char* kind) {
      return layer >= 0 && layers.at(layer).kind == kind ? layers.at(layer).inputs.at(0) : -2;
    };
    const int erf = input_of(sum.layer, "scale_shift"), scaled = input_of(erf, "activation"),
              start = input_of(scaled, "scale_shift");
    if (start != x.layer || sum.plain.scale != 1 || !has_same_places(sum.plain, x.plain)) continue;
    if (!is_near(option_of(layers.at(sum.layer), "scale"), 1) ||
        !is_near(option_of(layers.at(sum.layer), "shift"), 1) ||
        layers.at(erf).options[0].second != "\"erf\"" ||
        !is_near(option_of(layers.at(scaled), "scale"), std::sqrt(0.5)) ||
        !is_near(option_of(layers.at(scaled), "shift").value_or(0), 0))
      continue;
    const double scale = x.plain.scale;
    x.plain.scale = 1;
    x = settled(op, std::move(x));
    x.layer = op.add_layer("gelu", {x.layer}, {{"approximate", "\"none\""}});
    x.plain.scale = 2 * scale;
    set_plain(op, std::move(x));
    return true;
  }
  return false;
}

// Gives both values as many dimensions, and cuts the axes of those that both have alike.
bool align(OnnxPlain& a, OnnxPlain& b) {
  while (a.dims.size() < b.dims.size()) a.dims.insert(a.dims.begin(), std::vector<int>{});
  while (b.dims.size() < a.dims.size()) b.dims.insert(b.dims.begin(), std::vector<int>{});
  for (std::size_t i = 0; i < a.dims.size(); ++i)
    if (!a.dims[i].empty() && !b.dims[i].empty() && !refine_plain(a, b, i)) return false;
  return true;
}

bool covers(const OnnxPlain& a, const OnnxPlain& b) {
  for (std::size_t i = 0; i < a.dims.size(); ++i)
    if (a.dims[i].empty() && !b.dims[i].empty()) return false;
  return true;
}

// The axes of `b` in the groups of `a`; false if a group has some of its axes only.
bool groups_like(const OnnxPlain& a, const OnnxGroups& groups, const OnnxPlain& b,
                 OnnxGroups& found) {
  found.clear();
  for (const std::vector<int>& group : groups) {
    found.emplace_back();
    for (const int axis : group)
      for (std::size_t i = 0; i < a.dims.size(); ++i)
        for (std::size_t k = 0; k < a.dims[i].size() && !b.dims[i].empty(); ++k)
          if (a.dims[i][k] == axis) found.back().push_back(b.dims[i][k]);
    if (!found.back().empty() && found.back().size() != group.size()) return false;
  }
  while (!found.empty() && found.front().empty()) found.erase(found.begin());
  if (found.empty()) found.emplace_back();
  return true;
}

// Each axis as a dimension of its own; if they are too many, neighbors for which alike(axis, next)
// is true share one.
template <class Alike>
OnnxGroups single_axes(const OnnxPlain& plain, Alike alike) {
  const bool joins = plain.axes.size() > kMaxOnnxDimensions;
  OnnxGroups groups;
  for (int axis = 0; axis < static_cast<int>(plain.axes.size()); ++axis) {
    if (axis == 0 || !joins || !alike(axis - 1, axis)) groups.emplace_back();
    groups.back().push_back(axis);
  }
  return groups;
}

std::size_t dimension_with(const OnnxPlain& plain, int axis) {
  const auto has_axis = [axis](const std::vector<int>& dim) {
    return std::ranges::find(dim, axis) != dim.end();
  };
  return static_cast<std::size_t>(std::ranges::find_if(plain.dims, has_axis) - plain.dims.begin());
}

OnnxGroups groups_of_dims(const OnnxPlain& plain) {
  OnnxGroups groups;
  for (const std::vector<int>& dim : plain.dims) {
    groups.push_back(dim);
    std::erase(groups.back(), kOnnxBatchAxis);
  }
  return groups;
}

// The inputs of a layer that expands them.
OnnxActivation with_layer(OnnxOperator& op, const OnnxElementwise& layer, OnnxActivation result,
                          const std::vector<OnnxActivation>& values) {
  std::vector<int> inputs;
  for (const OnnxActivation& value : values) inputs.push_back(value.layer);
  result.layer = op.add_layer(layer.kind, inputs, layer.options);
  return result;
}

// Brings all values in ONNX's order, since none has all dimensions of the result.
OnnxActivation combined_in_order(OnnxOperator& op, const OnnxElementwise& layer,
                                 std::vector<OnnxActivation> values) {
  for (OnnxActivation& value : values) value = ordered(op, value, groups_of_dims(value.plain));
  OnnxActivation result = values[0];
  result.plain.axes.clear();
  for (std::size_t i = 0; i < result.plain.dims.size(); ++i) {
    const auto whole = std::ranges::find_if(
        values, [&](const OnnxActivation& value) { return !value.plain.dims[i].empty(); });
    const OnnxPlain& from = (whole == values.end() ? values[0] : *whole).plain;
    result.plain.stored[i] = from.stored[i];
    result.plain.dims[i] = from.dims[i];
    for (int& axis : result.plain.dims[i]) {
      if (axis == kOnnxBatchAxis) continue;
      result.plain.axes.push_back(from.axes[static_cast<std::size_t>(axis)]);
      axis = static_cast<int>(result.plain.axes.size()) - 1;
    }
  }
  return with_layer(op, layer, std::move(result), values);
}

// values[whole] has all dimensions of the result, and keeps its order.
OnnxActivation combined_like(OnnxOperator& op, const OnnxElementwise& layer,
                             std::vector<OnnxActivation> values, std::size_t whole) {
  OnnxActivation& first = values[whole];
  first = settled(op, std::move(first));
  OnnxGroups groups;
  bool fits = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i == whole) continue;
    values[i] = settled(op, std::move(values[i]));
    fits = fits && groups_like(first.plain, stored_groups(first.plain), values[i].plain, groups);
  }
  if (!fits) {
    const auto are_alike = [&](int axis, int next) {  // each value has both, or none of them
      const std::size_t dim = dimension_with(first.plain, axis),
                        other = dimension_with(first.plain, next);
      return std::ranges::all_of(values, [&](const OnnxActivation& value) {
        return value.plain.dims[dim].empty() == value.plain.dims[other].empty();
      });
    };
    const OnnxGroups single = single_axes(first.plain, are_alike);
    first = ordered(op, first, single);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i == whole) continue;
    groups_like(first.plain, stored_groups(first.plain), values[i].plain, groups);
    values[i] = ordered(op, values[i], groups);
  }
  return with_layer(op, layer, first, values);
}

// A bias, or a mask of scores.
bool set_special_sum(OnnxOperator& op) {
  for (const std::size_t index : {0U, 1U})
    if (add_bias(op, index) || add_mask(op, index)) return true;
  return false;
}

void translate_sum(OnnxOperator& op) {
  const std::string& type = op.node().type;
  if (type == "Add" && set_special_sum(op)) return;
  if ((type == "Add" || type == "Mul") && (set_norm_parameter(op, 0) || set_norm_parameter(op, 1)))
    return;
  for (const std::size_t index : {0U, 1U})
    if (const auto number = scalar(op, index))
      return combine_with_number(op, plain_input(op, 1 - index), *number, index == 0);
  if (type == "Mul" && op.is_activation(0) && op.is_activation(1) &&
      (set_gelu(op) || set_gated(op)))
    return;
  const char* kind = type == "Add"   ? "add"
                     : type == "Sub" ? "subtract"
                     : type == "Mul" ? "multiply"
                                     : "divide";
  set_plain(op, combined(op, kind, plain_input(op, 0), plain_input(op, 1)));
}

// One after another.
void translate_sum_of_all(OnnxOperator& op) {
  OnnxActivation sum = plain_input(op, 0);
  for (std::size_t i = 1; i < op.node().inputs.size(); ++i)
    sum = combined(op, "add", std::move(sum), plain_input(op, i));
  set_plain(op, std::move(sum));
}

void translate_power(OnnxOperator& op) {
  const auto exponent = scalar(op, 1);
  OnnxActivation value = settled(op, plain_input(op, 0));
  if (!exponent) {  // exp(exponent * log(x)), of numbers above 0
    add_function(op, value, "log");
    value = settled(op, combined(op, "multiply", std::move(value), plain_input(op, 1)));
    add_function(op, value, "exp");
    return set_plain(op, std::move(value));
  }
  if (*exponent == 2)
    value.layer = op.add_layer("multiply", {value.layer, value.layer});
  else
    value.layer =
        op.add_layer("activation", {value.layer},
                     {{"function", "\"power\""}, {"exponent", io::shortest_text(*exponent)}});
  set_plain(op, std::move(value));
}

void translate_function(OnnxOperator& op) {
  constexpr const char* kNames[][2] = {
      {"Erf", "erf"},   {"Exp", "exp"},           {"Log", "log"},
      {"Sqrt", "sqrt"}, {"Abs", "abs"},           {"Reciprocal", "reciprocal"},
      {"Mish", "mish"}, {"Softplus", "softplus"}, {"Softsign", "softsign"}};
  OnnxActivation value = plain_input(op, 0);
  if (op.node().type == "Neg") {
    value.plain.scale = -value.plain.scale;
    return set_plain(op, std::move(value));
  }
  value = settled(op, std::move(value));
  for (const auto& [type, function] : kNames)
    if (op.node().type == type) add_function(op, value, function);
  set_plain(op, std::move(value));
}

// The dimensions of a value that a reduction removes, the last one first, and their axes.
struct ReducedAxes {
  std::vector<std::size_t> dims;
  std::vector<int> axes;

  bool has(int axis) const { return std::ranges::count(axes, axis) > 0; }
};

ReducedAxes reduced_axes(const OnnxPlain& plain, const Numbers& axes) {
  ReducedAxes gone;
  for (const std::int64_t axis : axes) {
    gone.dims.push_back(dimension_of(axis, plain.dims.size()));
    const std::vector<int>& dim = plain.dims[gone.dims.back()];
    gone.axes.insert(gone.axes.end(), dim.begin(), dim.end());
  }
  std::ranges::sort(gone.dims, std::greater<>());
  if (std::ranges::adjacent_find(gone.dims) != gone.dims.end())
    throw OnnxUnsupported("over the axes " + onnx_shape_text(axes) +
                          ", expected each of them once");
  if (gone.dims.empty() || gone.has(kOnnxBatchAxis))
    throw OnnxUnsupported("over the axes " + onnx_shape_text(axes) + " of " +
                          onnx_shape_text(shape_of(plain)) + ", expected some without the samples");
  return gone;
}

// The file may divide a sum over pixels by a number of them, which it has computed.
void expect_any_size(OnnxOperator& op, const OnnxPlain& plain, const std::vector<int>& axes) {
  const std::string& type = op.node().type;
  const bool is_sum =
      type == "ReduceSum" || type == "ReduceL1" || type == "ReduceL2" || type == "ReduceSumSquare";
  if (op.all().reading.size && is_sum && extent_of(plain, axes) == kOnnxUnknown)
    throw OnnxUnsupported("a sum over pixels, whose number the file may contain");
}

// Without these axes, by the function of the node.
OnnxActivation reduced(OnnxOperator& op, OnnxActivation value, const Numbers& axes) {
  ReducedAxes gone = reduced_axes(value.plain, axes);
  expect_any_size(op, value.plain, gone.axes);
  const auto is_reduced = [&](int axis) { return gone.has(axis); };
  OnnxGroups groups = stored_groups(value.plain);
  const bool is_torn = std::ranges::any_of(groups, [&](const std::vector<int>& group) {
    const auto count = std::ranges::count_if(group, is_reduced);
    return count != 0 && count != std::ssize(group);
  });
  if (is_torn) {
    const OnnxGroups apart = single_axes(
        value.plain, [&](int axis, int next) { return is_reduced(axis) == is_reduced(next); });
    value = ordered(op, std::move(value), apart);
    groups = stored_groups(value.plain);
  }
  Numbers places;
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (!groups[i].empty() && is_reduced(groups[i][0])) {
      places.push_back(static_cast<std::int64_t>(i));
      value.plain.stored[i] = 1;
    }
  const std::string& type = op.node().type;
  const bool is_maximum = type == "ReduceMax" || type == "ReduceMin" || type == "GlobalMaxPool";
  const bool is_mean = type == "ReduceMean" || type == "GlobalAveragePool";
  const std::string function = is_mean ? "\"mean\"" : is_maximum ? "\"max\"" : "\"sum\"";
  const bool keeps = places.size() == groups.size();
  if (!places.empty()) {
    value.layer = op.add_layer(
        "reduce", {value.layer},
        {{"function", function}, {"axes", list_text(places)}, {"keep", keeps ? "true" : "false"}});
    op.all().layers.at(value.layer).keeps_last = places.back() + 1 != std::ssize(groups);
  }
  for (std::size_t i = places.size(); i-- > 0 && !keeps;)
    value.plain.stored.erase(value.plain.stored.begin() + places[i]);
  std::ranges::sort(gone.axes, std::greater<>());
  for (const int axis : gone.axes) remove_axis(value.plain, axis);
  for (std::size_t i = 0; i < gone.dims.size() && op.integer("keepdims", 1) == 0; ++i)
    value.plain.dims.erase(value.plain.dims.begin() + static_cast<std::ptrdiff_t>(gone.dims[i]));
  return value;
}

void translate_any_reduction(OnnxOperator& op) {
  translate_reduction(op,
                      op.has_input(1) ? op.numbers(1) : op.integers("axes").value_or(Numbers{}));
}

}  // namespace

OnnxActivation combined_all(OnnxOperator& op, const OnnxElementwise& layer,
                            std::vector<OnnxActivation> values) {
  for (std::size_t pass = 1; pass < values.size(); ++pass)  // a later one may cut more axes
    for (std::size_t i = 0; i < values.size(); ++i)
      for (std::size_t k = i + 1; k < values.size(); ++k)
        if (!align(values[i].plain, values[k].plain))
          throw OnnxUnsupported(onnx_shape_text(values[i].shape) + " and " +
                                onnx_shape_text(values[k].shape) +
                                ", expected one shape, or extents of 1 (as NumPy broadcasts)");
  for (std::size_t i = 0; i < values.size(); ++i)
    if (std::ranges::all_of(values, [&](const OnnxActivation& other) {
          return covers(values[i].plain, other.plain);
        }))
      return combined_like(op, layer, std::move(values), i);
  return combined_in_order(op, layer, std::move(values));
}

// Sums and products read the value with all dimensions first.
OnnxActivation combined(OnnxOperator& op, const char* kind, OnnxActivation a, OnnxActivation b) {
  const std::string name = kind;
  OnnxPlain first = a.plain, second = b.plain;
  const bool swaps = name != "subtract" && name != "divide" && align(first, second) &&
                     !covers(first, second) && covers(second, first);
  if (swaps) std::swap(a, b);
  return combined_all(op, {kind}, {std::move(a), std::move(b)});
}

void translate_reduction(OnnxOperator& op, const Numbers& axes) {
  const std::string& type = op.node().type;
  OnnxActivation value = plain_input(op, 0);
  if (type == "ReduceMin") value.plain.scale = -value.plain.scale;
  value = settled(op, std::move(value));
  if (type == "ReduceL1") add_function(op, value, "abs");
  if (type == "ReduceL2" || type == "ReduceSumSquare")
    value.layer = op.add_layer("multiply", {value.layer, value.layer});
  value = reduced(op, std::move(value), axes);
  if (type == "ReduceL2") add_function(op, value, "sqrt");
  if (type == "ReduceMin") value.plain.scale = -1;
  set_plain(op, std::move(value));
}

std::vector<OnnxOperatorRow> onnx_sums() {
  std::vector<OnnxOperatorRow> rows{{"Pow", translate_power}, {"Sum", translate_sum_of_all}};
  for (const char* type :
       {"ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare"})
    rows.push_back({type, translate_any_reduction});
  for (const char* type : {"Add", "Sub", "Mul", "Div"}) rows.push_back({type, translate_sum});
  for (const char* type :
       {"Erf", "Exp", "Log", "Sqrt", "Abs", "Neg", "Reciprocal", "Mish", "Softplus", "Softsign"})
    rows.push_back({type, translate_function});
  return rows;
}

}  // namespace models
