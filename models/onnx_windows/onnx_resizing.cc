// Images of another size: `resize`, or sums of entries of rows and columns.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "io/base/text/text_parts.h"
#include "models/onnx_windows/onnx_window_operators.h"
#include "models/onnx_windows/onnx_windows.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

std::string places_of(OnnxOperator& op) {
  return op.text("coordinate_transformation_mode", "half_pixel");
}
std::string rounding_of(OnnxOperator& op) { return op.text("nearest_mode", "round_prefer_floor"); }

// Whether places of the output are those of the layer, for the factor of each axis.
bool has_known_places(OnnxOperator& op, bool linear, const std::vector<double>& factors,
                      const Numbers& out) {
  const std::string mode = places_of(op), rounding = rounding_of(op);
  if (linear) {
    // PyTorch's variant differs for an output of one pixel.
    const bool is_one = out[0] == 1 || out[1] == 1;
    return mode == "half_pixel" || (mode == "pytorch_half_pixel" && !is_one);
  }
  if (mode == "asymmetric") return rounding == "floor";
  // Equal for whole factors.
  return mode == "half_pixel" && rounding.starts_with("round_prefer") &&
         std::ranges::all_of(factors, [](double f) {
           return f >= 1 && f == static_cast<double>(static_cast<std::int64_t>(f));
         });
}

std::string both(const std::string& height, const std::string& width) {
  return height == width ? height : "[" + height + ", " + width + "]";
}

// [height, width] of the sizes or factors of [batch, c, height, width].
template <class Number>
std::vector<Number> of_image(const std::vector<Number>& all, bool keeps_others) {
  if (all.size() != 4 || !keeps_others)
    throw OnnxUnsupported("expected another height and width alone, of 4 dimensions");
  return {all[2], all[3]};
}

struct Resizing {
  std::vector<double> factors;  // of height and width
  Numbers out;                  // kOnnxUnknown: unknown
  std::pair<std::string, std::string> option;
};

Resizing by_sizes(OnnxOperator& op, const Numbers& shape) {
  if (op.all().reading.size)
    throw OnnxUnsupported("a size that the file may have computed from that of the image");
  const Numbers sizes = op.numbers(3);
  const std::int64_t fixed_batch = op.all().fixed_batch;
  const bool keeps_samples =
      !sizes.empty() && (sizes[0] == kOnnxBatch || (fixed_batch > 0 && sizes[0] == fixed_batch));
  const Numbers out = of_image(sizes, keeps_samples && sizes.size() == 4 && sizes[1] == shape[1]);
  for (const std::int64_t extent : out)
    if (extent < 1 || extent > kMaxOnnxExtent)
      throw OnnxUnsupported("sizes " + onnx_shape_text(sizes) + ", expected known ones");
  std::vector<double> factors;
  for (std::size_t axis = 0; axis < 2; ++axis)
    factors.push_back(is_onnx_symbol(shape[axis + 2])
                          ? std::numeric_limits<double>::quiet_NaN()  // unknown
                          : static_cast<double>(out[axis]) / static_cast<double>(shape[axis + 2]));
  return {factors, out, {"size", both(std::to_string(out[0]), std::to_string(out[1]))}};
}

Resizing by_scales(OnnxOperator& op, const Numbers& shape) {
  const std::vector<double> scales = op.tensor(2).reals;
  const std::vector<double> factors =
      of_image(scales, scales.size() == 4 && scales[0] == 1 && scales[1] == 1);
  Numbers out;
  std::vector<std::string> texts;
  for (std::size_t axis = 0; axis < 2; ++axis) {
    const double factor = shortest_decimal(static_cast<float>(factors[axis]));
    if (!(factor > 0 && factor <= 1024))
      throw OnnxUnsupported("a scale of " + base::shortest_text(factor) +
                            ", expected one above 0 and at most 1024");
    const std::int64_t in = shape[axis + 2];
    if (in != kOnnxUnknown && in > kMaxOnnxExtent / 1024)
      throw OnnxUnsupported("an image of " + std::to_string(in) + " to be resized");
    out.push_back(in == kOnnxUnknown ? in
                                     : static_cast<std::int64_t>(static_cast<double>(in) * factor));
    texts.push_back(base::shortest_text(factor));
  }
  return {factors, out, {"factor", both(texts[0], texts[1])}};
}

// The place in an axis of `in` entries that entry `i` of `out` is read from, by the names of ONNX.
double place_in(const std::string& mode, std::int64_t i, std::int64_t in, std::int64_t out,
                double factor) {
  const auto at = static_cast<double>(i), last_in = static_cast<double>(in - 1),
             last_out = static_cast<double>(out - 1);
  if (mode == "align_corners") return out == 1 ? 0 : at * last_in / last_out;
  if (mode == "asymmetric") return at / factor;
  if (mode == "pytorch_half_pixel" && out == 1) return 0;
  if (mode != "half_pixel" && mode != "pytorch_half_pixel")
    throw OnnxUnsupported("places '" + mode +
                          "', expected half_pixel, pytorch_half_pixel, align_corners or "
                          "asymmetric");
  return (at + 0.5) / factor - 0.5;
}

std::int64_t rounded(const std::string& rounding, double place) {
  const double low = std::floor(place), part = place - low;
  const bool up = rounding == "ceil"                ? part > 0
                  : rounding == "round_prefer_ceil" ? part >= 0.5
                  : rounding == "floor"             ? false
                                                    : part > 0.5;
  return static_cast<std::int64_t>(low) + (up ? 1 : 0);
}

// The weights of the entries around a place, `part` after the second of four (Keys, "Cubic
// convolution interpolation for digital image processing", 1981) or the first of two.
std::vector<double> weights_around(double part, bool cubic, double a) {
  if (!cubic) return {1 - part, part};
  const auto near = [=](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
  const auto far = [=](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  return {far(1 + part), near(part), near(1 - part), far(2 - part)};
}

// Leaves out entries outside of the axis; the others have the sum 1.
void exclude_outside(std::int64_t first, std::int64_t in, std::vector<double>& weights) {
  double sum = 0;
  for (std::size_t tap = 0; tap < weights.size(); ++tap) {
    const std::int64_t at = first + static_cast<std::int64_t>(tap);
    if (at < 0 || at >= in) weights[tap] = 0;
    sum += weights[tap];
  }
  for (double& weight : weights) weight /= sum;
}

struct Interpolation {
  std::string mode;  // nearest, linear or cubic
  std::string places, rounding;
  double cubic_a = -0.75;
  bool excludes = false;
};

OnnxEntries resized_entries(const Interpolation& by, std::int64_t in, std::int64_t out,
                            double factor) {
  OnnxEntries along{.entries = {}, .taps = by.mode == "nearest" ? 1 : by.mode == "linear" ? 2 : 4};
  for (std::int64_t i = 0; i < out; ++i) {
    double place = place_in(by.places, i, in, out, factor);
    if (by.mode == "nearest") {
      along.entries.push_back(std::clamp<std::int64_t>(rounded(by.rounding, place), 0, in - 1));
      continue;
    }
    if (by.mode == "linear") place = std::clamp(place, 0.0, static_cast<double>(in - 1));
    const double low = std::floor(place);
    std::vector<double> weights = weights_around(place - low, by.mode == "cubic", by.cubic_a);
    const std::int64_t first = static_cast<std::int64_t>(low) - (by.mode == "cubic" ? 1 : 0);
    if (by.excludes) exclude_outside(first, in, weights);
    for (std::int64_t tap = 0; tap < along.taps; ++tap)
      along.entries.push_back(std::clamp<std::int64_t>(first + tap, 0, in - 1));
    along.weights.insert(along.weights.end(), weights.begin(), weights.end());
  }
  return along;
}

OnnxActivation interpolated(OnnxOperator& op, OnnxActivation value, const Resizing& to) {
  const Interpolation by{op.text("mode", "nearest"), places_of(op), rounding_of(op),
                         op.real("cubic_coeff_a", -0.75), op.integer("exclude_outside", 0) != 0};
  for (const std::size_t axis : {0U, 1U}) {
    const std::int64_t in = value.shape[axis + 2], out = to.out[axis];
    if (is_onnx_symbol(in) || is_onnx_symbol(out) || in < 1 || out < 1 || out > (1 << 16))
      throw OnnxUnsupported("mode '" + by.mode + "' with places '" + by.places + "' of " +
                            onnx_shape_text(value.shape) +
                            ", expected known extents (export the network with a fixed height and "
                            "width), or PyTorch's interpolation with align_corners=False");
    if (in == out && by.places != "asymmetric") continue;
    value =
        with_entries(op, std::move(value), axis, resized_entries(by, in, out, to.factors[axis]));
  }
  return value;
}

void translate_resize(OnnxOperator& op) {
  OnnxActivation value = op.image(0);
  const std::string mode = op.text("mode", "nearest");
  if (mode != "linear" && mode != "nearest" && mode != "cubic")
    throw OnnxUnsupported("mode '" + mode + "', expected nearest, linear or cubic");
  if (op.integer("antialias", 0) != 0 || op.attribute("axes") != nullptr)
    throw OnnxUnsupported("antialias or axes, expected neither");
  if (const std::string policy = op.text("keep_aspect_ratio_policy", "stretch");
      op.has_input(3) && policy != "stretch")
    throw OnnxUnsupported("keep_aspect_ratio_policy '" + policy + "', expected stretch");
  const Resizing to = op.has_input(3) ? by_sizes(op, value.shape) : by_scales(op, value.shape);
  if (mode == "cubic" || !has_known_places(op, mode == "linear", to.factors, to.out))
    return op.set(interpolated(op, std::move(value), to));
  value.layer =
      op.add_layer("resize", {value.layer},
                   {{"mode", mode == "linear" ? "\"bilinear\"" : "\"nearest\""}, to.option});
  std::ranges::copy(to.out, value.shape.begin() + 2);
  op.set(std::move(value));
}

}  // namespace

std::vector<OnnxOperatorRow> onnx_resizing() { return {{"Resize", translate_resize}}; }

}  // namespace models
