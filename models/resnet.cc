// Residual networks: a stem, four stages of blocks, global average pooling and one dense layer. A
// new depth needs other `depths`; a new stem or kind of block is another function in ResNet.
#include <array>

#include "models/chain.h"
#include "models/model_families.h"

namespace models {

namespace layers = engine::layers;

namespace {

// Adds one block at the end of `x`, with parameters under `name`. `width` is the stage's number of
// channels.
using AppendBlock = void (*)(Chain& x, const std::string& name, std::int64_t width,
                             std::int64_t stride, layers::ConvInit init);
using Stem = void (*)(Chain& x, layers::ConvInit init);

struct ResNet {
  Stem stem;
  AppendBlock block;
  std::array<int, 4> depths;  // number of blocks of the stages of width 64, 128, 256, 512
  layers::ConvInit init;
};

// Convolutions before a batch norm have no bias: the norm would cancel it.
engine::LayerPtr convolution(std::int64_t channels, std::int64_t kernel, std::int64_t stride,
                             layers::ConvInit init) {
  return layers::conv2d({.out_channels = channels,
                         .kernel = kernel,
                         .stride = stride,
                         .padding = kernel / 2,
                         .bias = false,
                         .init = init});
}

// Returns x itself, or a 1x1 convolution of it if the block changes its shape.
Chain shortcut(Chain x, const std::string& name, std::int64_t channels, std::int64_t stride,
               layers::ConvInit init) {
  if (stride != 1 || x.shape()[2] != channels)
    x.then(name + ".downsample.0", convolution(channels, 1, stride, init))
        .then(name + ".downsample.1", layers::batch_norm2d());
  return x;
}

void basic_block(Chain& x, const std::string& name, std::int64_t width, std::int64_t stride,
                 layers::ConvInit init) {
  const Chain start = x;
  x.then(name + ".conv1", convolution(width, 3, stride, init))
      .then(name + ".bn1", layers::batch_norm2d())
      .then(name + ".relu", layers::relu())
      .then(name + ".conv2", convolution(width, 3, 1, init))
      .then(name + ".bn2", layers::batch_norm2d());
  x.add(shortcut(start, name, width, stride, init)).then(layers::relu());
}

void bottleneck(Chain& x, const std::string& name, std::int64_t width, std::int64_t stride,
                layers::ConvInit init) {
  const Chain start = x;
  x.then(name + ".conv1", convolution(width, 1, 1, init))
      .then(name + ".bn1", layers::batch_norm2d())
      .then(name + ".relu1", layers::relu())
      .then(name + ".conv2", convolution(width, 3, stride, init))
      .then(name + ".bn2", layers::batch_norm2d())
      .then(name + ".relu2", layers::relu())
      .then(name + ".conv3", convolution(4 * width, 1, 1, init))
      .then(name + ".bn3", layers::batch_norm2d());
  x.add(shortcut(start, name, 4 * width, stride, init)).then(layers::relu());
}

void imagenet_stem(Chain& x, layers::ConvInit init) {
  x.then("conv1", convolution(64, 7, 2, init))
      .then("bn1", layers::batch_norm2d())
      .then("relu", layers::relu());
  x.then("maxpool", layers::max_pool2d({.window = 3, .stride = 2, .padding = 1}));
}

void cifar_stem(Chain& x, layers::ConvInit init) {
  x.then("conv1", convolution(64, 3, 1, init))
      .then("bn1", layers::batch_norm2d())
      .then("relu", layers::relu());
}

engine::Graph build_resnet(const ResNet& net, const ModelOptions& options) {
  engine::Graph graph;
  const Ends ends = begin_classifier(graph, options);
  Chain x(graph, ends.input);
  net.stem(x, net.init);
  for (int stage = 0; stage < 4; ++stage)
    for (int i = 0; i < net.depths[static_cast<std::size_t>(stage)]; ++i) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(i);
      net.block(x, name, std::int64_t{64} << stage, stage > 0 && i == 0 ? 2 : 1, net.init);
    }
  x.then("avgpool", layers::global_average_pool()).then("fc", layers::dense(options.classes));
  end_classifier(graph, ends, x.at());
  return graph;
}

}  // namespace

using enum layers::ConvInit;

engine::Graph build_resnet18(const ModelOptions& options) {
  return build_resnet({imagenet_stem, basic_block, {2, 2, 2, 2}, kNormalFanOut}, options);
}
engine::Graph build_resnet34(const ModelOptions& options) {
  return build_resnet({imagenet_stem, basic_block, {3, 4, 6, 3}, kNormalFanOut}, options);
}
engine::Graph build_resnet50(const ModelOptions& options) {
  return build_resnet({imagenet_stem, bottleneck, {3, 4, 6, 3}, kNormalFanOut}, options);
}
engine::Graph build_resnet101(const ModelOptions& options) {
  return build_resnet({imagenet_stem, bottleneck, {3, 4, 23, 3}, kNormalFanOut}, options);
}
engine::Graph build_resnet152(const ModelOptions& options) {
  return build_resnet({imagenet_stem, bottleneck, {3, 8, 36, 3}, kNormalFanOut}, options);
}

engine::Graph build_resnet18_cifar(const ModelOptions& options) {
  return build_resnet({cifar_stem, basic_block, {2, 2, 2, 2}, kUniformFanIn}, options);
}
engine::Graph build_resnet50_cifar(const ModelOptions& options) {
  return build_resnet({cifar_stem, bottleneck, {3, 4, 6, 3}, kUniformFanIn}, options);
}

}  // namespace models
