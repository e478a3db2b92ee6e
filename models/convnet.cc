// convnet: the small convolutional network of many MNIST tutorials.
#include "models/chain.h"
#include "models/model_families.h"

namespace models {

namespace layers = engine::layers;

namespace {

// The parameters have the prefixes "NAME.0" (convolution) and "NAME.1" (batch norm).
void convolution_block(Chain& x, const std::string& name, std::int64_t channels) {
  x.then(name + ".0", layers::conv2d({.out_channels = channels, .kernel = 5, .padding = 2}))
      .then(name + ".1", layers::batch_norm2d())
      .then(name + ".2", layers::relu())
      .then(name + ".3", layers::max_pool2d({.window = 2}));
}

}  // namespace

engine::Graph build_convnet(const ModelOptions& options) {
  engine::Graph graph;
  const Ends ends = begin_classifier(graph, options);
  Chain x(graph, ends.input);
  convolution_block(x, "layer1", 16);
  convolution_block(x, "layer2", 32);
  x.then(layers::flatten()).then("fc", layers::dense(options.classes));
  end_classifier(graph, ends, x.at());
  return graph;
}

}  // namespace models
