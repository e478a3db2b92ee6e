// Norms of channels: of batches, of instances and of groups.
#include <algorithm>
#include <optional>
#include <string>

#include "io/base/text/text_parts.h"
#include "models/onnx_parameters/onnx_sharing.h"
#include "models/onnx_translation/onnx_combined.h"
#include "models/onnx_translation/onnx_plain.h"
#include "models/onnx_translation/onnx_tensors.h"
#include "models/onnx_windows/onnx_window_operators.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// Input 0 with a layer's output [h, w, channels], or [1, all others, channels]; the channels are
// dimension 1.
OnnxActivation with_channels_last(OnnxOperator& op) {
  OnnxActivation value = op.activation(0);
  value = materialized(op, value.shape.size() == 4 ? image_or_vector(op, 0) : as_plain(value));
  const OnnxPlain& plain = value.plain;
  if (plain.dims.size() < 2 || contains_samples(plain.dims[1]))
    throw OnnxUnsupported("it reads " + onnx_shape_text(value.shape) +
                          ", expected [batch, channels, ...]");
  const OnnxGroups stored = stored_groups(plain);
  if (stored.size() == 3 && stored.back() == plain.dims[1]) return value;
  OnnxGroups groups{{}, {}, plain.dims[1]};
  for (int axis = 0; axis < static_cast<int>(plain.axes.size()); ++axis)
    if (std::ranges::find(plain.dims[1], axis) == plain.dims[1].end()) groups[1].push_back(axis);
  return ordered(op, std::move(value), groups);
}

// A parameter of each channel, or the same number for all of them, as an array of the layer.
// `count`: how many there are in the file, those of groups or of channels.
OnnxLayerArray channel_array(OnnxOperator& op, const char* name, std::size_t input,
                             std::int64_t count, std::int64_t channels) {
  const auto* computed = std::get_if<OnnxTensor>(&op.input(input));
  const bool fits = computed != nullptr && computed->shape == Numbers{count};
  const OnnxConstant from = fits ? OnnxConstant{} : op.constant(input, {count});
  const bool is_neutral = is_all(op, input, input == 1 ? 1 : 0);
  if (!fits && !is_neutral && count == channels) return {name, from, {channels}};
  const std::vector<double> numbers = op.tensor(input).reals;
  if (numbers.empty() || std::ranges::count(numbers, numbers[0]) != std::ssize(numbers))
    throw OnnxUnsupported(std::string(name) + " of " + std::to_string(count) + " groups and " +
                          std::to_string(channels) + " channels, expected one number for all, or " +
                          "one for each channel");
  std::vector<double> values = zeros(op, {channels}, true).reals;
  std::ranges::fill(values, numbers[0]);
  return {name, {}, {channels}, std::move(values)};
}

// (value - mean) / sqrt(variance + eps), by numbers of the graph.
OnnxActivation normed_by(OnnxOperator& op, OnnxActivation value, OnnxActivation mean,
                         OnnxActivation variance) {
  value = combined(op, "subtract", std::move(value), std::move(mean));
  variance = materialized(op, std::move(variance));
  variance.layer = op.add_layer("scale_shift", {variance.layer},
                                {{"shift", base::shortest_text(op.real("epsilon", 1e-5))}});
  variance.layer = op.add_layer("activation", {variance.layer}, {{"function", "\"sqrt\""}});
  return combined(op, "divide", std::move(value), std::move(variance));
}

// With a mean of 0 and a variance of 1 in each row, a number of its dimension 1.
OnnxActivation with_normed_rows(OnnxOperator& op, OnnxActivation value) {
  std::vector<int> others;
  for (std::size_t i = 0; i < value.plain.dims.size(); ++i)
    if (i != 1) others.insert(others.end(), value.plain.dims[i].begin(), value.plain.dims[i].end());
  value = with_last(op, std::move(value), others);
  value.layer =
      op.add_layer("layer_norm", {value.layer},
                   {{"eps", base::shortest_text(op.real("epsilon", 1e-5))}, {"affine", "false"}});
  return value;
}

// A weight, [1, outputs, others], that is standardized as PyTorch's networks without batch norms
// do. Returns false for values with samples.
bool standardize_weight(OnnxOperator& op) {
  OnnxActivation value = plain_input(op, 0);
  const std::size_t rank = value.plain.dims.size();
  if (rank < 2 || std::ranges::any_of(value.plain.dims, contains_samples)) return false;
  const auto by_row = [&](std::size_t index) {
    OnnxActivation numbers = plain_input(op, index);
    if (numbers.plain.dims.size() != 1)
      throw OnnxUnsupported("input " + std::to_string(index) + " has the shape " +
                            onnx_shape_text(numbers.shape) + ", expected one number for each row");
    numbers.plain.dims.resize(rank - 1);
    return numbers;
  };
  value = op.integer("training_mode", 0) != 0
              ? with_normed_rows(op, std::move(value))
              : normed_by(op, std::move(value), by_row(3), by_row(4));
  if (!is_all(op, 1, 1)) value = combined(op, "multiply", std::move(value), by_row(1));
  if (!is_all(op, 2, 0)) value = combined(op, "add", std::move(value), by_row(2));
  set_plain(op, std::move(value));
  return true;
}

// The mean over the samples is that of all dimensions but the channels'.
void translate_batch_norm(OnnxOperator& op) {
  if (standardize_weight(op)) return;
  OnnxActivation value = with_channels_last(op);
  const std::int64_t channels = value.plain.stored.back();
  // ONNX weighs the old statistics, PyTorch and the engine the new ones.
  const double momentum = shortest_decimal(static_cast<float>(1 - op.real("momentum", 0.9)));
  const OnnxLayerArray weight = channel_array(op, "weight", 1, channels, channels);
  const OnnxConstant mean = op.constant(3, {channels});
  const OnnxConstant& owned = weight.from.tensor != nullptr ? weight.from : mean;
  OnnxListedLayer layer{.kind = "batch_norm2d",
                        .name = op.all().layers.free_name(initializer_name(owned), op.node()),
                        .tied = {},
                        .inputs = {value.layer},
                        .options = {{"eps", base::shortest_text(op.real("epsilon", 1e-5))},
                                    {"momentum", base::shortest_text(momentum)}},
                        .arrays = {weight,
                                   channel_array(op, "bias", 2, channels, channels),
                                   {"running_mean", mean, {channels}},
                                   {"running_var", op.constant(4, {channels}), {channels}}}};
  value.layer = add_norm(op, std::move(layer));
  set_plain(op, std::move(value));
}

void add_group_norm(OnnxOperator& op, OnnxActivation value, std::int64_t groups,
                    std::vector<OnnxLayerArray> arrays) {
  const io::StoredTensor* weight = arrays[0].from.tensor;
  const std::string name = op.all().layers.free_name(
      weight == nullptr ? "" : initializer_name(arrays[0].from), op.node());
  value.layer = add_norm(op, {.kind = "group_norm",
                              .name = name,
                              .tied = {},
                              .inputs = {value.layer},
                              .options = {{"groups", std::to_string(groups)},
                                          {"eps", base::shortest_text(op.real("epsilon", 1e-5))}},
                              .arrays = std::move(arrays)});
  set_plain(op, std::move(value));
}

void expect_samples_first(const OnnxActivation& value) {
  if (value.plain.dims[0] != std::vector<int>{kOnnxBatchAxis} ||
      std::ranges::any_of(value.plain.dims.begin() + 1, value.plain.dims.end(), contains_samples))
    throw OnnxUnsupported("it reads " + onnx_shape_text(shape_of(value.plain)) +
                          ", expected [batch, channels, ...]");
}

// Returns true if dimension 1 is the number of runs of the layer's channels: PyTorch exports
// GroupNorm like this, with a reshape before and after.
bool has_runs_of_channels(const OnnxPlain& plain) {
  const OnnxGroups stored = stored_groups(plain);
  const std::vector<int>& runs = plain.dims[1];
  return stored.size() == 3 && !runs.empty() && stored.back().size() > runs.size() &&
         std::equal(runs.begin(), runs.end(), stored.back().begin());
}

void translate_instance_norm(OnnxOperator& op) {
  OnnxActivation value = materialized(op, as_plain(op.activation(0)));
  if (value.plain.dims.size() < 2 || !has_runs_of_channels(value.plain))
    value = with_channels_last(op);
  expect_samples_first(value);
  const std::int64_t groups = extent_of(value.plain, value.plain.dims[1]),
                     channels = value.plain.stored.back();
  std::vector<OnnxLayerArray> arrays{channel_array(op, "weight", 1, groups, channels),
                                     channel_array(op, "bias", 2, groups, channels)};
  add_group_norm(op, std::move(value), groups, std::move(arrays));
}

void translate_group_norm(OnnxOperator& op) {
  OnnxActivation value = with_channels_last(op);
  expect_samples_first(value);
  const std::int64_t channels = value.plain.stored.back(), groups = op.integer("num_groups", 0);
  if (groups < 1 || channels % groups != 0)
    throw OnnxUnsupported("num_groups " + std::to_string(groups) + " of " +
                          std::to_string(channels) + " channels, expected groups of equal size");
  const auto* stored = std::get_if<OnnxConstant>(&op.input(1));
  const bool is_by_channel = stored != nullptr && shape_of(*stored) == Numbers{channels};
  const std::int64_t numbers = is_by_channel ? channels : groups;
  std::vector<OnnxLayerArray> arrays{channel_array(op, "weight", 1, numbers, channels),
                                     channel_array(op, "bias", 2, numbers, channels)};
  add_group_norm(op, std::move(value), groups, std::move(arrays));
}

// The parameter of an input that has a number for each channel, [channels, 1, ...] before `rank`
// dimensions; nothing for others.
std::optional<OnnxConstant> channel_parameter(OnnxOperator& op, std::size_t index,
                                              std::int64_t channels, std::size_t rank) {
  const auto fits = [&](Numbers shape) {
    if (shape.size() > rank) return false;
    while (!shape.empty() && shape.size() >= rank && shape[0] == 1) shape.erase(shape.begin());
    Numbers wanted(rank - 1, 1);
    wanted[0] = channels;
    return shape == wanted;
  };
  if (std::holds_alternative<OnnxConstant>(op.input(index))) {
    const OnnxConstant constant = op.constant(index);
    return is_trained_weight(constant) && fits(shape_of(constant)) ? std::optional(constant)
                                                                   : std::nullopt;
  }
  const auto* value = std::get_if<OnnxActivation>(&op.input(index));
  if (value == nullptr || value->layer < 0 || !fits(value->shape)) return std::nullopt;
  const OnnxListedLayer& layer = op.all().layers.at(value->layer);
  if (layer.kind != "parameter" || layer.arrays.empty() || !is_whole_output(as_plain(*value).plain))
    return std::nullopt;
  const OnnxConstant& from = layer.arrays[0].from;
  const Numbers shape = shape_of(from);
  const bool is_turned = from.transposed && shape[0] > 1 && shape[1] > 1;
  return is_turned ? std::nullopt : std::optional(from);
}

// Whether the input, a constant, has more dimensions than the value or larger ones.
bool expands(OnnxOperator& op, std::size_t index, const OnnxPlain& plain) {
  const Numbers to = shape_of(plain);
  return broadcast_shape(op.tensor(index).shape, to) != to;
}

// Whether the array is computed, with this number for each channel.
bool has_only(const OnnxLayerArray& array, double number) {
  return !array.values.empty() &&
         std::ranges::all_of(array.values, [&](double value) { return value == number; });
}

// Lets a norm whose weight and bias are known share them with an earlier norm.
void tie_norm(OnnxTranslation& all, int norm) {
  OnnxListedLayer& layer = all.layers.at(norm);
  const OnnxConstant weight = layer.arrays[0].from;
  if (weight.tensor == nullptr) return;
  const int owner = all.layers.user_of(weight);
  if (owner < 0) return all.layers.set_user(weight, norm);
  if (owner == norm || !has_arrays_of(all, layer, all.layers.at(owner))) return;
  layer.tied = all.layers.at(owner).name;
  layer.arrays.clear();
}

// Gives the norm the name of its weight's module, which a layer of the weight alone may have.
void take_name(OnnxOperator& op, std::size_t index, int norm, const OnnxConstant& weight) {
  OnnxLayerList& layers = op.all().layers;
  layers.rename(norm, initializer_name(weight));
  const auto* value = std::get_if<OnnxActivation>(&op.input(index));
  if (value != nullptr && layers.at(value->layer).name + ".weight" == initializer_name(weight))
    std::swap(layers.at(norm).name, layers.at(value->layer).name);
}

// Ones or zeros without a name may be parameters.
void note_unnamed_numbers(OnnxOperator& op, std::size_t index, const OnnxListedLayer& norm) {
  const auto* numbers = std::get_if<OnnxConstant>(&op.input(index));
  if (numbers != nullptr && numbers->origin == OnnxOrigin::kComputed)
    op.all().effects.unnamed_norms.insert(norm.name);
}

}  // namespace

bool set_norm_parameter(OnnxOperator& op, std::size_t index) {
  const auto* found = std::get_if<OnnxActivation>(&op.input(1 - index));
  if (found == nullptr || !is_only_reader(op, 1 - index)) return false;
  OnnxLayerList& layers = op.all().layers;
  OnnxListedLayer& layer = layers.at(found->layer);
  const OnnxPlain plain = as_plain(*found).plain;
  if (layer.kind != "group_norm" || layer.arrays.size() < 2 || plain.scale != 1 ||
      plain.dims.size() < 2 || stored_groups(plain).back() != plain.dims[1])
    return false;
  const bool is_weight = op.node().type == "Mul";
  OnnxLayerArray& array = layer.arrays[is_weight ? 0 : 1];
  if (is_all(op, index, is_weight ? 1 : 0) && !expands(op, index, plain)) {
    note_unnamed_numbers(op, index, layer);
    op.set(OnnxActivation(*found));
    return true;
  }
  // A weight applies before the bias.
  if (!has_only(array, is_weight ? 1 : 0) || (is_weight && !has_only(layer.arrays[1], 0)))
    return false;
  const auto parameter = channel_parameter(op, index, plain.stored.back(), plain.dims.size());
  if (!parameter || is_apart(op.all(), *parameter)) return false;
  array = {array.name, *parameter, array.shape};
  array.from.transposed = false;
  if (is_weight)
    take_name(op, index, found->layer, *parameter);
  else
    tie_norm(op.all(), found->layer);
  op.set(OnnxActivation(*found));
  return true;
}

std::vector<OnnxOperatorRow> onnx_norms() {
  return {{"BatchNormalization", translate_batch_norm},
          {"InstanceNormalization", translate_instance_norm},
          {"GroupNormalization", translate_group_norm}};
}

}  // namespace models
