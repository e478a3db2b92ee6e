// mlp: a multilayer perceptron, by default 784-512-512-10.
#include "models/chain.h"
#include "models/model_families.h"

namespace models {

namespace layers = engine::layers;

engine::Graph build_mlp(const ModelOptions& options) {
  engine::Graph graph;
  const Ends ends = begin_classifier(graph, options);
  Chain x(graph, ends.input);
  x.then(layers::flatten())
      .then("layers.0", layers::dense(512))
      .then(layers::relu())
      .then("layers.1", layers::dense(512))
      .then(layers::relu())
      .then("layers.2", layers::dense(options.classes));
  end_classifier(graph, ends, x.at());
  return graph;
}

}  // namespace models
