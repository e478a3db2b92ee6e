// Adds the inputs and the loss of a classifier.
#include "models/chain.h"

namespace models {

Ends begin_classifier(engine::Graph& graph, const ModelOptions& options) {
  if (options.sample_shape.rank() != 3)
    throw engine::ModelError(
        "this model reads images or rows of numbers, [h, w, c], not samples of shape " +
        options.sample_shape.to_string() + " (token ids)");
  const engine::NodeId input = graph.input("input", options.sample_shape);
  return {.input = input,
          .labels = options.regression
                        ? graph.input("targets", {options.classes})
                        : graph.input("labels", options.label_shape.value_or(engine::Shape{}),
                                      engine::DType::kI32),
          .label_smoothing = options.label_smoothing,
          .regression = options.regression};
}

Ends begin_token_model(engine::Graph& graph, std::int64_t positions, double label_smoothing,
                       const std::optional<engine::Shape>& labels) {
  const engine::Shape texts{positions};
  return {.input = graph.input("input", texts, engine::DType::kI32),
          .labels = graph.input("labels", labels.value_or(texts), engine::DType::kI32),
          .label_smoothing = label_smoothing};
}

void end_classifier(engine::Graph& graph, const Ends& ends, engine::NodeId logits) {
  graph.set_outputs(
      logits,
      graph.add("",
                ends.regression ? engine::layers::regression_loss(*ends.regression)
                                : engine::layers::softmax_cross_entropy(ends.label_smoothing),
                {logits, ends.labels}));
}

}  // namespace models
