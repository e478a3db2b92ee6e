// Residual networks: a stem, four stages of blocks, global average pooling and one dense layer.
// A new depth is another `depths`; a new stem or kind of block is another function in ResNet.
#include <array>

#include "models/chain.h"
#include "models/model_families.h"

namespace models {

namespace layers = engine::layers;

namespace {

// Adds one block at the end of `x`, its parameters under `name`. `width` is the stage's number of channels.
using Block = void (*)(Chain& x, const std::string& name, std::int64_t width, std::int64_t stride);
using Stem = void (*)(Chain& x);

struct ResNet {
  Stem stem;
  Block block;
  std::array<int, 4> depths;  // blocks of the stages of width 64, 128, 256, 512
};

// Convolutions before a batch norm have no bias: the norm would take it away again.
engine::LayerPtr convolution(std::int64_t channels, std::int64_t kernel, std::int64_t stride) {
  return layers::conv2d(
      {.out_channels = channels, .kernel = kernel, .stride = stride, .padding = kernel / 2, .bias = false});
}

// x itself, or a 1x1 convolution of it where the block changes its shape.
Chain shortcut(Chain x, const std::string& name, std::int64_t channels, std::int64_t stride) {
  if (stride != 1 || x.shape()[2] != channels)
    x.then(name + ".downsample.0", convolution(channels, 1, stride)).then(name + ".downsample.1", layers::batch_norm2d());
  return x;
}

void basic_block(Chain& x, const std::string& name, std::int64_t width, std::int64_t stride) {
  const Chain start = x;
  x.then(name + ".conv1", convolution(width, 3, stride))
      .then(name + ".bn1", layers::batch_norm2d())
      .then(name + ".relu", layers::relu())
      .then(name + ".conv2", convolution(width, 3, 1))
      .then(name + ".bn2", layers::batch_norm2d());
  x.add(shortcut(start, name, width, stride)).then(layers::relu());
}

void cifar_stem(Chain& x) {
  x.then("conv1", convolution(64, 3, 1)).then("bn1", layers::batch_norm2d()).then("relu", layers::relu());
}

engine::Graph build_resnet(const ResNet& net, const ModelOptions& options) {
  engine::Graph graph;
  const Ends ends = begin_classifier(graph, options.sample_shape);
  Chain x(graph, ends.input);
  net.stem(x);
  for (int stage = 0; stage < 4; ++stage)
    for (int i = 0; i < net.depths[static_cast<std::size_t>(stage)]; ++i) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(i);
      net.block(x, name, std::int64_t{64} << stage, stage > 0 && i == 0 ? 2 : 1);
    }
  x.then("avgpool", layers::global_average_pool()).then("fc", layers::dense(options.classes));
  end_classifier(graph, ends, x.at());
  return graph;
}

}  // namespace

engine::Graph build_resnet18_cifar(const ModelOptions& options) {
  return build_resnet({.stem = cifar_stem, .block = basic_block, .depths = {2, 2, 2, 2}}, options);
}

}  // namespace models
