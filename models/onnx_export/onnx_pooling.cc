// Uses windows with explicit padding at the end: the meaning of ONNX's ceil_mode has changed with
// the operator sets, and runtimes differ.
#include "models/onnx_export/onnx_layers.h"

#include <algorithm>
#include <vector>

#include "models/onnx_export/onnx_layer.h"

namespace models {
namespace {

struct PoolWindows {
  std::int64_t window, stride, padding;
  engine::Shape in, out;  // [h, w, c]

  // Returns the number of pixels by which the last window exceeds the padded image, along axis 0 or
  // 1.
  std::int64_t beyond(int axis) const {
    return std::max<std::int64_t>(0, (out[axis] - 1) * stride + window - (in[axis] + 2 * padding));
  }
  AttributeList attributes() const {
    return {{"kernel_shape", std::vector<std::int64_t>{window, window}},
            {"strides", std::vector<std::int64_t>{stride, stride}},
            {"pads", std::vector<std::int64_t>{padding, padding, padding + beyond(0),
                                               padding + beyond(1)}}};
  }
  // Returns the number of positions of window `index` within the padded image.
  std::int64_t places(int axis, std::int64_t index) const {
    return std::min(window, in[axis] + 2 * padding - index * stride);
  }
};

PoolWindows windows_of(const OnnxLayer& layer) {
  return {layer.whole("window"), layer.whole("stride"), layer.whole("padding"), layer.input_shape(),
          layer.node().shape};
}

std::string add_max_pool2d(OnnxLayer& layer) {
  return layer.out.add("MaxPool", layer.inputs, windows_of(layer).attributes());
}

// AveragePool divides by the whole window, the engine by its positions in the padded image.
std::string add_average_pool2d(OnnxLayer& layer) {
  const PoolWindows w = windows_of(layer);
  AttributeList attributes = w.attributes();
  attributes.push_back({"count_include_pad", std::int64_t{1}});
  const std::string means = layer.out.add("AveragePool", layer.inputs, std::move(attributes));
  if (w.beyond(0) + w.beyond(1) == 0) return means;
  std::vector<float> factors;
  for (std::int64_t row = 0; row < w.out[0]; ++row)
    for (std::int64_t column = 0; column < w.out[1]; ++column)
      factors.push_back(static_cast<float>(w.window * w.window) /
                        static_cast<float>(w.places(0, row) * w.places(1, column)));
  return layer.out.add("Mul", {means, layer.out.floats(factors, {1, 1, w.out[0], w.out[1]})});
}

std::string add_global_average_pool(OnnxLayer& layer) {
  return layer.out.add("Flatten", {layer.out.add("GlobalAveragePool", layer.inputs)},
                       {{"axis", std::int64_t{1}}});
}

constexpr OnnxKind kPoolingKinds[] = {
    {"max_pool2d", add_max_pool2d},
    {"average_pool2d", add_average_pool2d},
    {"global_average_pool", add_global_average_pool},
};

}  // namespace

std::span<const OnnxKind> onnx_pooling_kinds() { return kPoolingKinds; }

}  // namespace models
