// Images of another size: interpolated, or padded.
#include <algorithm>
#include <string>

#include "io/base/text/text_format.h"
#include "models/onnx_import/onnx_plain.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// Whether places of the output are those of the layer, for the factor of each axis.
bool has_known_places(OnnxOperator& op, bool linear, const std::vector<double>& factors,
                      const Numbers& out) {
  const std::string mode = op.text("coordinate_transformation_mode", "half_pixel"),
                    rounding = op.text("nearest_mode", "round_prefer_floor");
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
    factors.push_back(static_cast<double>(out[axis]) /
                      static_cast<double>(std::max<std::int64_t>(1, shape[axis + 2])));
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
      throw OnnxUnsupported("a scale of " + io::shortest_text(factor) +
                            ", expected one above 0 and at most 1024");
    const std::int64_t in = shape[axis + 2];
    if (in != kOnnxUnknown && in > kMaxOnnxExtent / 1024)
      throw OnnxUnsupported("an image of " + std::to_string(in) + " to be resized");
    out.push_back(in == kOnnxUnknown ? in
                                     : static_cast<std::int64_t>(static_cast<double>(in) * factor));
    texts.push_back(io::shortest_text(factor));
  }
  return {factors, out, {"factor", both(texts[0], texts[1])}};
}

void translate_resize(OnnxOperator& op) {
  OnnxActivation value = op.image(0);
  const std::string mode = op.text("mode", "nearest");
  const bool linear = mode == "linear";
  if (!linear && mode != "nearest")
    throw OnnxUnsupported("mode '" + mode + "', expected nearest or linear");
  if (op.integer("antialias", 0) != 0 || op.attribute("axes") != nullptr)
    throw OnnxUnsupported("antialias or axes, expected neither");
  const Resizing to = op.has_input(3) ? by_sizes(op, value.shape) : by_scales(op, value.shape);
  if (!has_known_places(op, linear, to.factors, to.out))
    throw OnnxUnsupported("places '" + op.text("coordinate_transformation_mode", "half_pixel") +
                          "', expected PyTorch's: half_pixel for linear, asymmetric with floor "
                          "for nearest");
  value.layer = op.add_layer("resize", {value.layer},
                             {{"mode", linear ? "\"bilinear\"" : "\"nearest\""}, to.option});
  std::ranges::copy(to.out, value.shape.begin() + 2);
  op.set(std::move(value));
}

// Adds what two pads add to an extent.
void add_pads(std::int64_t& extent, std::int64_t before, std::int64_t after) {
  if (extent == kOnnxUnknown) return;
  if (__builtin_add_overflow(extent, before, &extent) ||
      __builtin_add_overflow(extent, after, &extent) || extent > kMaxOnnxExtent)
    throw OnnxUnsupported("an image of " + std::to_string(extent));
}

// Channels are padded by zeros, as in shortcuts without parameters.
void translate_pad(OnnxOperator& op) {
  const Numbers pads = op.numbers(1);
  if (pads == Numbers(2 * op.activation(0).shape.size(), 0)) return op.set(op.activation(0));
  OnnxActivation value = op.image(0);
  const double constant = op.has_input(2) ? op.number(2) : 0;
  const bool is_sound =
      op.text("mode", "constant") == "constant" && !op.has_input(3) && pads.size() == 8 &&
      pads[0] == 0 && pads[4] == 0 &&
      std::ranges::all_of(pads, [](std::int64_t pad) { return pad >= 0 && pad <= kMaxOnnxExtent; });
  if (!is_sound || ((pads[1] != 0 || pads[5] != 0) && constant != 0))
    throw OnnxUnsupported("pads " + onnx_shape_text(pads) +
                          ", expected a constant around the image, or zeros before and after the "
                          "channels");
  if (pads[1] + pads[5] > 0)
    value.layer =
        op.add_layer("pad_channels", {value.layer},
                     {{"before", std::to_string(pads[1])}, {"after", std::to_string(pads[5])}});
  const Numbers sides{pads[2], pads[3], pads[6], pads[7]};
  if (sides != Numbers(4, 0))
    value.layer =
        op.add_layer("pad", {value.layer},
                     {{"padding", list_text(sides)}, {"value", io::shortest_text(constant)}});
  for (std::size_t dim = 1; dim < 4; ++dim) add_pads(value.shape[dim], pads[dim], pads[dim + 4]);
  op.set(std::move(value));
}

}  // namespace

std::vector<OnnxOperatorRow> onnx_resizing() {
  return {{"Resize", translate_resize}, {"Pad", translate_pad}};
}

}  // namespace models
