// The narrow residual networks for 32x32 images of He et al., 2016, section 4.2: 6 n + 2 layers.
#include "models/chain.h"
#include "models/model_families.h"

namespace models {

namespace layers = engine::layers;

namespace {

engine::LayerPtr narrow_convolution(std::int64_t channels, std::int64_t stride) {
  return layers::conv2d({.out_channels = channels,
                         .kernel = 3,
                         .stride = stride,
                         .padding = 1,
                         .bias = false,
                         .init = layers::ConvInit::kNormalFanOut});
}

// Option A: if the block halves the map and doubles the channels, takes every second pixel, with
// zeros around its channels.
Chain narrow_shortcut(Chain x, std::int64_t channels, std::int64_t stride) {
  const std::int64_t missing = channels - x.shape()[2];
  if (stride != 1) x.then(layers::average_pool2d({.window = 1, .stride = stride}));
  return x.then(layers::pad_channels(missing / 2, missing - missing / 2));
}

void narrow_block(Chain& x, const std::string& name, std::int64_t channels, std::int64_t stride) {
  const Chain start = stride == 1 ? x : narrow_shortcut(x, channels, stride);
  x.then(name + ".conv1", narrow_convolution(channels, stride))
      .then(name + ".bn1", layers::batch_norm2d())
      .then(name + ".relu", layers::relu())
      .then(name + ".conv2", narrow_convolution(channels, 1))
      .then(name + ".bn2", layers::batch_norm2d());
  x.add(start).then(layers::relu());
}

engine::Graph build(int blocks_per_stage, const ModelOptions& options) {
  engine::Graph graph;
  const Ends ends = begin_classifier(graph, options);
  Chain x(graph, ends.input);
  x.then("conv1", narrow_convolution(16, 1))
      .then("bn1", layers::batch_norm2d())
      .then("relu", layers::relu());
  for (int stage = 0; stage < 3; ++stage)
    for (int i = 0; i < blocks_per_stage; ++i)
      narrow_block(x, "layer" + std::to_string(stage + 1) + "." + std::to_string(i),
                   std::int64_t{16} << stage, stage > 0 && i == 0 ? 2 : 1);
  x.then("avgpool", layers::global_average_pool()).then("linear", layers::dense(options.classes));
  end_classifier(graph, ends, x.at());
  return graph;
}

}  // namespace

engine::Graph build_resnet20_cifar(const ModelOptions& options) { return build(3, options); }
engine::Graph build_resnet56_cifar(const ModelOptions& options) { return build(9, options); }

}  // namespace models
