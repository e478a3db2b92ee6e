// PyramidNet: residual blocks with gradually increasing width; the shortcut is padded with zeros
// for the new channels.
#include "models/chain.h"
#include "models/model_families.h"

namespace models {

namespace layers = engine::layers;

namespace {

engine::LayerPtr convolution(std::int64_t channels, std::int64_t stride) {
  return layers::conv2d(
      {.out_channels = channels, .kernel = 3, .stride = stride, .padding = 1, .bias = false});
}

// The zeros are appended after the averages: the result is the same, and fewer pixels are
// processed.
Chain shortcut(Chain x, std::int64_t channels, std::int64_t stride) {
  const std::int64_t missing = channels - x.shape()[2];
  if (stride == 2) x.then(layers::average_pool2d({.window = 2, .ceil_mode = true}));
  return x.then(layers::pad_channels(0, missing));
}

// There is no ReLU before the first convolution or after the addition. The shortcut comes first in
// the graph, so that the last batch norm can add it.
void block(Chain& x, const std::string& name, std::int64_t channels, std::int64_t stride) {
  const Chain start = shortcut(x, channels, stride);
  x.then(name + ".bn1", layers::batch_norm2d())
      .then(name + ".conv1", convolution(channels, stride))
      .then(name + ".bn2", layers::batch_norm2d())
      .then(name + ".relu", layers::relu())
      .then(name + ".conv2", convolution(channels, 1))
      .then(name + ".bn3", layers::batch_norm2d())
      .add(start);
}

}  // namespace

engine::Graph build_pyramidnet110(const ModelOptions& options) {
  constexpr std::int64_t kStages = 3, kBlocks = 17, kFirstWidth = 16, kWidening = 5;
  engine::Graph graph;
  const Ends ends = begin_classifier(graph, options);
  Chain x(graph, ends.input);
  x.then("conv1", convolution(kFirstWidth, 1)).then("bn1", layers::batch_norm2d());
  std::int64_t width = kFirstWidth;
  for (std::int64_t stage = 0; stage < kStages; ++stage)
    for (std::int64_t i = 0; i < kBlocks; ++i)
      block(x, "layer" + std::to_string(stage + 1) + "." + std::to_string(i), width += kWidening,
            stage > 0 && i == 0 ? 2 : 1);
  x.then("bn_out", layers::batch_norm2d())
      .then("relu", layers::relu())
      .then("avgpool", layers::global_average_pool())
      .then("fc_out", layers::dense(options.classes));
  end_classifier(graph, ends, x.at());
  return graph;
}

}  // namespace models
