// Other borders: `pad` around images and along dimensions, or entries of rows and columns that
// repeat.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "io/base/text/text_parts.h"
#include "models/onnx_translation/onnx_plain.h"
#include "models/onnx_translation/onnx_tensors.h"
#include "models/onnx_windows/onnx_window_operators.h"
#include "models/onnx_windows/onnx_windows.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// Adds what two pads add to an extent.
void add_pads(std::int64_t& extent, std::int64_t before, std::int64_t after) {
  if (extent == kOnnxUnknown) return;
  if (__builtin_add_overflow(extent, before, &extent) ||
      __builtin_add_overflow(extent, after, &extent) || extent > kMaxOnnxExtent)
    throw OnnxUnsupported("an image of " + std::to_string(extent));
}

// The pads of all dimensions: first those before them, then those after.
Numbers all_pads(OnnxOperator& op, std::size_t rank) {
  const Numbers given = op.numbers(1);
  if (!op.has_input(3)) return given;
  const Numbers axes = op.numbers(3);
  Numbers pads(2 * rank);
  if (given.size() != 2 * axes.size()) throw OnnxUnsupported("pads and axes of different lengths");
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t dim = dimension_of(axes[i], rank);
    pads[dim] = given[i];
    pads[dim + rank] = given[i + axes.size()];
  }
  return pads;
}

// The entry that a place outside of an axis repeats, by the names of ONNX.
std::int64_t repeated_entry(const std::string& mode, std::int64_t at, std::int64_t extent) {
  if (mode == "edge") return std::clamp<std::int64_t>(at, 0, extent - 1);
  const std::int64_t period = mode == "wrap" ? extent : 2 * (extent - 1);
  if (period == 0) throw OnnxUnsupported("mode 'reflect' on an axis of 1 pixel");
  const std::int64_t place = (at % period + period) % period;
  return place < extent ? place : period - place;
}

// Rows or columns before and after an image that repeat its own; fewer than none cut it.
OnnxActivation repeated(OnnxOperator& op, OnnxActivation value, const std::string& mode,
                        std::size_t axis, std::int64_t before, std::int64_t after) {
  const std::int64_t extent = value.shape[axis + 2];
  if (before == 0 && after == 0) return value;
  if (is_onnx_symbol(extent) || extent < 1 || extent > (1 << 16))
    throw OnnxUnsupported("mode '" + mode + "' or a part of " + onnx_shape_text(value.shape) +
                          ", expected known extents");
  // Pads below 0 cut the axis before the others repeat it.
  const std::int64_t first = std::max<std::int64_t>(0, -before),
                     left = extent - first - std::max<std::int64_t>(0, -after),
                     numbers = extent + before + after;
  if (left < 1)
    throw OnnxUnsupported("pads that leave no pixel of " + onnx_shape_text(value.shape));
  if (numbers < 1 || numbers > (1 << 16))
    throw OnnxUnsupported("an image of " + std::to_string(numbers) + " pixels along an axis");
  OnnxEntries along;
  for (std::int64_t i = 0; i < numbers; ++i)
    along.entries.push_back(first +
                            repeated_entry(mode, i - std::max<std::int64_t>(0, before), left));
  return with_entries(op, std::move(value), axis, along);
}

// Channels are padded by zeros, as in shortcuts without parameters.
OnnxActivation padded_channels(OnnxOperator& op, OnnxActivation value, const Numbers& pads) {
  if (pads[1] + pads[5] > 0)
    value.layer =
        op.add_layer("pad_channels", {value.layer},
                     {{"before", std::to_string(pads[1])}, {"after", std::to_string(pads[5])}});
  add_pads(value.shape[1], pads[1], pads[5]);
  return value;
}

// The number around a value.
double border_of(OnnxOperator& op) {
  const double number = op.has_input(2) ? op.number(2) : 0;
  if (std::isnan(number)) throw OnnxUnsupported("pads of NaN, expected a number");
  return number;
}

OnnxActivation padded_by_constant(OnnxOperator& op, OnnxActivation value, const Numbers& pads) {
  const double constant = border_of(op);
  if ((pads[1] != 0 || pads[5] != 0) && constant != 0)
    throw OnnxUnsupported("pads " + onnx_shape_text(pads) + " of " + base::shortest_text(constant) +
                          ", expected zeros before and after the channels");
  value = padded_channels(op, std::move(value), pads);
  Numbers sides{pads[2], pads[3], pads[6], pads[7]};
  for (const std::size_t axis : {0U, 1U}) {  // a pad below 0 cuts
    value = repeated(op, std::move(value), "edge", axis, std::min<std::int64_t>(0, sides[axis]),
                     std::min<std::int64_t>(0, sides[axis + 2]));
    for (const std::size_t side : {axis, axis + 2})
      sides[side] = std::max<std::int64_t>(0, sides[side]);
  }
  if (sides != Numbers(4, 0))
    value.layer = op.add_layer(
        "pad", {value.layer},
        {{"padding", base::shape_text(sides)}, {"value", base::shortest_text(constant)}});
  add_pads(value.shape[2], sides[0], sides[2]);
  add_pads(value.shape[3], sides[1], sides[3]);
  return value;
}

bool is_image(const OnnxPlain& plain) {
  return plain.dims.size() == 4 && plain.dims[0] == std::vector<int>{kOnnxBatchAxis} &&
         std::none_of(plain.dims.begin() + 1, plain.dims.end(), contains_samples);
}

// A dimension, as the columns of an image whose rows and channels are the others.
OnnxActivation padded_dimension(OnnxOperator& op, OnnxActivation value, std::size_t dim,
                                std::int64_t before, std::int64_t after) {
  std::size_t place = 0;
  value = with_axis(op, std::move(value), dim, place);
  Numbers image{1, value.plain.stored.at(place), 1}, stored = value.plain.stored;
  for (std::size_t i = 0; i < stored.size(); ++i)
    if (is_onnx_symbol(stored[i]))
      throw OnnxUnsupported("a part of " + onnx_shape_text(value.shape) +
                            ", expected known extents");
    else if (i != place)
      image[i < place ? 0 : 2] *= stored[i];
  add_pads(stored[place], before, after);
  if (image != value.plain.stored)
    value.layer = op.add_layer("reshape", {value.layer}, {{"shape", base::shape_text(image)}});
  const std::string constant = base::shortest_text(border_of(op));
  value.layer =
      op.add_layer("pad", {value.layer},
                   {{"padding", base::shape_text({0, before, 0, after})}, {"value", constant}});
  image[1] = stored[place];
  if (image != stored)
    value.layer = op.add_layer("reshape", {value.layer}, {{"shape", base::shape_text(stored)}});
  std::vector<int>& axes = value.plain.dims[dim];
  if (axes.empty()) {  // an extent of 1 before all others
    insert_axis(value.plain, 0, stored[place]);
    axes = {0};
  } else {
    value.plain.axes[static_cast<std::size_t>(axes[0])].extent = stored[place];
  }
  value.plain.stored = std::move(stored);
  return value;
}

void pad_plain(OnnxOperator& op, OnnxActivation value, const Numbers& pads) {
  const std::size_t rank = value.plain.dims.size();
  const std::string mode = op.text("mode", "constant");
  if (pads.size() != 2 * rank || mode != "constant" ||
      std::ranges::any_of(pads, [](auto pad) { return pad < 0 || pad > kMaxOnnxExtent; }))
    throw OnnxUnsupported("mode '" + mode + "' with pads " + onnx_shape_text(pads) + " of " +
                          onnx_shape_text(value.shape) +
                          ", expected a constant and pads from 0, or an image, [batch, channels, "
                          "height, width]");
  for (std::size_t dim = 0; dim < rank; ++dim)
    if (pads[dim] + pads[dim + rank] > 0)
      value = padded_dimension(op, std::move(value), dim, pads[dim], pads[dim + rank]);
  set_plain(op, std::move(value));
}

void translate_pad(OnnxOperator& op) {
  const Numbers pads = all_pads(op, op.activation(0).shape.size());
  if (pads == Numbers(2 * op.activation(0).shape.size(), 0)) return op.set(op.activation(0));
  const OnnxActivation plain = as_plain(op.activation(0));
  if (!is_image(plain.plain)) return pad_plain(op, plain, pads);
  OnnxActivation value = op.image(0);
  const std::string mode = op.text("mode", "constant");
  const bool is_sound =
      pads.size() == 8 && pads[0] == 0 && pads[4] == 0 && pads[1] >= 0 && pads[5] >= 0 &&
      std::ranges::all_of(pads, [](std::int64_t pad) { return std::abs(pad) <= kMaxOnnxExtent; });
  const bool repeats = mode == "reflect" || mode == "edge" || mode == "wrap";
  if (!is_sound || (!repeats && mode != "constant") || (repeats && pads[1] + pads[5] > 0))
    throw OnnxUnsupported("mode '" + mode + "' with pads " + onnx_shape_text(pads) +
                          ", expected a constant, reflect, edge or wrap around the image, or zeros "
                          "before and after the channels");
  if (!repeats) return op.set(padded_by_constant(op, std::move(value), pads));
  value = repeated(op, std::move(value), mode, 0, pads[2], pads[6]);
  op.set(repeated(op, std::move(value), mode, 1, pads[3], pads[7]));
}

}  // namespace

std::vector<OnnxOperatorRow> onnx_padding() { return {{"Pad", translate_pad}}; }

}  // namespace models
