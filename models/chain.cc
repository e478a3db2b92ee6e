// Inputs and loss of a classifier.
#include "models/chain.h"

namespace models {

Ends begin_classifier(engine::Graph& graph, const engine::Shape& sample_shape) {
  return {.input = graph.input("input", sample_shape), .labels = graph.input("labels", {}, engine::DType::kI32)};
}

void end_classifier(engine::Graph& graph, const Ends& ends, engine::NodeId logits) {
  graph.set_outputs(logits, graph.add("", engine::layers::softmax_cross_entropy(), {logits, ends.labels}));
}

}  // namespace models
