#include "models/onnx_windows/onnx_windows.h"

#include <algorithm>

#include "io/base/text/text_parts.h"
#include "models/onnx_translation/onnx_plain.h"
#include "models/onnx_translation/onnx_tensors.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

constexpr std::int64_t kMaxEntries = 1 << 16;

// Attributes of one dimension as those of a height of 1 and a width.
Numbers both_axes(Numbers values, bool is_row, std::int64_t of_row) {
  if (!is_row) return values;
  if (values.size() == 1) return {of_row, values[0]};
  if (values.size() == 2) return {of_row, values[0], of_row, values[1]};
  return values;
}

std::string auto_pad(OnnxOperator& op) { return op.text("auto_pad", "NOTSET"); }

int add_constant(OnnxOperator& op, const Numbers& shape, std::vector<double> values) {
  OnnxLayerList& layers = op.all().layers;
  return layers.add({.kind = "constant",
                     .name = layers.free_name("", op.node()),
                     .tied = {},
                     .inputs = {},
                     .options = {{"shape", base::shape_text(shape)}},
                     .arrays = {{"value", {}, shape, std::move(values)}}});
}

// Several images below each other.
OnnxWindowInput image_stack(OnnxOperator& op, const OnnxActivation& from) {
  const auto& dims = from.plain.dims;
  const Numbers shape = shape_of(from.plain);
  if (std::any_of(shape.begin() + 1, shape.end(), is_onnx_symbol))
    throw OnnxUnsupported("it reads " + onnx_shape_text(shape) + ", expected known extents");
  OnnxWindowInput stack{.value = from};
  std::vector<int> axes;
  for (const int axis : dims[0]) {
    const bool is_batch = axis == kOnnxBatchAxis;
    if (!is_batch) axes.push_back(axis);
    stack.images.push_back(is_batch ? kOnnxBatch : extent_of(from.plain, {axis}));
  }
  const std::int64_t rows = stack.image_count() * shape[2];
  expect_onnx_extent(rows);
  axes.insert(axes.end(), dims[2].begin(), dims[2].end());
  const OnnxActivation image = ordered(op, from, {axes, dims[3], dims[1]});
  stack.value = {.layer = image.layer, .shape = {kOnnxBatch, shape[1], rows, shape[3]}};
  return stack;
}

// Several images again, of these rows each.
void set_stack(OnnxOperator& op, const OnnxWindowInput& from, OnnxActivation value,
               std::int64_t rows) {
  const std::int64_t count = from.image_count(), all = value.shape[2] / count,
                     columns = value.shape[3], channels = value.shape[1];
  value.layer = op.add_layer("reshape", {value.layer},
                             {{"shape", base::shape_text({count, all, columns * channels})}});
  if (all != rows)
    value.layer = op.add_layer("slice", {value.layer},
                               {{"axis", "1"}, {"first", "0"}, {"count", std::to_string(rows)}});
  OnnxPlain plain{.stored = {count, rows, columns * channels}, .axes = {}, .dims = {{}}};
  const auto add_axis = [&](std::vector<int>& dim, std::int64_t extent) {
    if (extent == 1) return;
    dim.push_back(static_cast<int>(plain.axes.size()));
    plain.axes.push_back({extent});
  };
  for (const std::int64_t extent : from.images)
    extent == kOnnxBatch ? plain.dims[0].push_back(kOnnxBatchAxis)
                         : add_axis(plain.dims[0], extent);
  std::vector<int> of_rows, of_columns, of_channels;
  add_axis(of_rows, rows);
  add_axis(of_columns, columns);
  add_axis(of_channels, channels);
  plain.dims.insert(plain.dims.end(), {of_channels, of_rows, of_columns});
  value.plain = std::move(plain);
  value.layout = OnnxActivation::Layout::kPlain;
  set_plain(op, std::move(value));
}

}  // namespace

std::int64_t OnnxWindowInput::image_count() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : images)
    if (extent != kOnnxBatch) count *= extent;
  return count;
}

OnnxActivation spread_images(OnnxOperator& op, const OnnxWindowInput& from, OnnxWindows& windows) {
  OnnxActivation value = from.value;
  const std::int64_t count = from.image_count(), columns = value.shape[3] * value.shape[1],
                     rows = value.shape[2] / count, stride = windows.strides[0],
                     padded = windows.pads[0] + rows + windows.pads[2],
                     pitch = (padded + stride - 1) / stride * stride;
  expect_onnx_extent(pitch);
  expect_onnx_extent(count * pitch);
  if (pitch != rows) {
    value.layer = op.add_layer("reshape", {value.layer},
                               {{"shape", base::shape_text({count, rows, columns})}});
    const Numbers sides{0, windows.pads[0], 0, pitch - rows - windows.pads[0]};
    value.layer = op.add_layer("pad", {value.layer}, {{"padding", base::shape_text(sides)}});
    value.layer = op.add_layer(
        "reshape", {value.layer},
        {{"shape", base::shape_text({count * pitch, value.shape[3], value.shape[1]})}});
  }
  value.shape[2] = count * pitch;
  windows.pads[0] = 0;
  windows.pads[2] = std::max<std::int64_t>(0, windows.reach(0) - stride);
  return value;
}

OnnxWindowInput window_input(OnnxOperator& op, bool several) {
  if (!op.is_activation(0)) {  // the same image for all samples
    OnnxActivation value = constant_value(op, 0);
    if (value.plain.dims.size() != 4 || !value.plain.dims[0].empty())
      throw OnnxUnsupported("it reads a constant of " + onnx_shape_text(value.shape) +
                            ", expected one image");
    value.plain.dims[0] = {kOnnxBatchAxis};
    return {.value = as_image(op, value), .is_shared = true};
  }
  if (several) {
    const OnnxActivation all = as_plain(std::get<OnnxActivation>(op.input(0)));
    const auto& dims = all.plain.dims;
    if (dims.size() == 4 && dims[0].size() > 1 && contains_samples(dims[0]) &&
        std::none_of(dims.begin() + 1, dims.end(), contains_samples))
      return image_stack(op, all);
  }
  OnnxActivation value = image_or_vector(op, 0);
  if (value.shape.size() != 3) return {.value = std::move(value)};
  value = as_plain(value);
  value.plain.dims.insert(value.plain.dims.begin() + 2, std::vector<int>{});
  return {.value = as_image(op, value), .is_row = true};
}

void set_windows(OnnxOperator& op, const OnnxWindowInput& from, OnnxActivation value,
                 std::int64_t rows) {
  if (!from.images.empty()) return set_stack(op, from, std::move(value), rows);
  if (!from.is_row && !from.is_shared) return op.set(std::move(value));
  value = as_plain(value);
  if (from.is_shared) value.plain.dims[0].clear();
  if (from.is_row) value.plain.dims.erase(value.plain.dims.begin() + 2);
  set_plain(op, std::move(value));
}

void expect_onnx_extent(std::int64_t extent) {
  if (extent > kMaxOnnxExtent)
    throw OnnxUnsupported("an image of " + std::to_string(extent) + ", expected at most " +
                          std::to_string(kMaxOnnxExtent));
}

void expect_numbers(const char* name, const Numbers& values, std::size_t count,
                    std::int64_t least) {
  const bool fits = values.size() == count && std::ranges::all_of(values, [&](std::int64_t value) {
                      return value >= least && value <= kMaxOnnxExtent;
                    });
  if (!fits)
    throw OnnxUnsupported(std::string(name) + " " + onnx_shape_text(values) + ", expected " +
                          std::to_string(count) + " numbers from " + std::to_string(least));
}

std::string number_or_list(const Numbers& values) {
  return values == Numbers(values.size(), values[0]) ? std::to_string(values[0])
                                                     : base::shape_text(values);
}

OnnxWindows window_attributes(OnnxOperator& op, const Numbers& kernel, bool is_row) {
  const auto list = [&](const char* name, const Numbers& otherwise, std::int64_t of_row) {
    const auto found = op.integers(name);
    return found ? both_axes(*found, is_row, of_row) : otherwise;
  };
  OnnxWindows windows{list("kernel_shape", kernel, 1), list("strides", {1, 1}, 1),
                      list("dilations", {1, 1}, 1), list("pads", {0, 0, 0, 0}, 0)};
  expect_numbers("kernel_shape", windows.kernel, 2, 1);
  expect_numbers("strides", windows.strides, 2, 1);
  expect_numbers("dilations", windows.dilations, 2, 1);
  const std::string pads = auto_pad(op);
  if (pads == "VALID")
    windows.pads = Numbers(4, 0);
  else if (pads == "SAME_UPPER" || pads == "SAME_LOWER")
    windows.pads.clear();
  else if (pads != "NOTSET")
    throw OnnxUnsupported("auto_pad '" + pads +
                          "', expected NOTSET, SAME_UPPER, SAME_LOWER or VALID");
  if (!windows.pads.empty()) expect_numbers("pads", windows.pads, 4, 0);
  return windows;
}

void set_pads_along(OnnxOperator& op, std::size_t axis, std::int64_t total, OnnxWindows& windows) {
  if (windows.pads.empty()) windows.pads.resize(4);
  const std::int64_t smaller = total / 2, larger = total - smaller;
  const bool is_upper = auto_pad(op) == "SAME_UPPER";
  windows.pads[axis] = is_upper ? smaller : larger;
  windows.pads[axis + 2] = is_upper ? larger : smaller;
}

void set_same_pads(OnnxOperator& op, const Numbers& image, OnnxWindows& windows) {
  if (!windows.pads.empty()) return;
  for (std::size_t axis = 0; axis < 2; ++axis) {
    const std::int64_t stride = windows.strides[axis], extent = image[axis];
    std::int64_t total = windows.reach(axis) - 1;
    if (stride > 1) {
      if (extent == kOnnxUnknown)
        throw OnnxUnsupported("auto_pad with a stride of " + std::to_string(stride) +
                              " on an image whose height or width the file does not have");
      expect_onnx_extent(extent);
      total += ((extent + stride - 1) / stride - 1) * stride + 1 - extent;
    }
    set_pads_along(op, axis, std::max<std::int64_t>(0, total), windows);
  }
  expect_numbers("pads of auto_pad", windows.pads, 4, 0);
}

OnnxActivation with_entries(OnnxOperator& op, OnnxActivation image, std::size_t axis,
                            const OnnxEntries& along) {
  if (std::ssize(along.entries) > kMaxEntries)
    throw OnnxUnsupported("windows of " + std::to_string(along.entries.size()) +
                          " entries along an axis, expected at most " +
                          std::to_string(kMaxEntries));
  zeros(op, {std::ssize(along.entries)}, false);  // counts them
  const std::string place = std::to_string(axis);
  image.layer = op.add_layer("gather", {image.layer},
                             {{"axis", place}, {"indices", base::shape_text(along.entries)}});
  op.all().layers.at(image.layer).keeps_last = true;
  const std::int64_t numbers = along.numbers();
  image.shape[axis + 2] = numbers;
  if (along.taps == 1) return image;
  const std::int64_t rows = image.shape[2], columns = image.shape[3], channels = image.shape[1];
  Numbers shape{rows, columns, channels}, factors{numbers, along.taps, 1};
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, along.taps);
  if (axis == 0) factors.push_back(1);
  image.layer = op.add_layer("reshape", {image.layer}, {{"shape", base::shape_text(shape)}});
  if (!along.weights.empty())
    image.layer = op.add_layer("multiply", {image.layer, add_constant(op, factors, along.weights)});
  image.layer = op.add_layer("reduce", {image.layer},
                             {{"function", along.weights.empty() ? "\"max\"" : "\"sum\""},
                              {"axes", base::shape_text({static_cast<std::int64_t>(axis) + 1})},
                              {"keep", "false"}});
  op.all().layers.at(image.layer).keeps_last = true;
  return image;
}

OnnxActivation scaled_pixels(OnnxOperator& op, OnnxActivation image, std::vector<double> factors) {
  const int map = add_constant(op, {image.shape[2], image.shape[3], 1}, std::move(factors));
  image.layer = op.add_layer("multiply", {image.layer, map});
  return image;
}

}  // namespace models
