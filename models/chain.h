// Adds layers to a graph one after another, for readable model definitions.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "engine/graph/graph.h"
#include "engine/layers/layers.h"
#include "models/model_catalog.h"

namespace models {

// The current end of a model's graph. A copy starts a branch.
class Chain {
 public:
  Chain(engine::Graph& graph, engine::NodeId at) : graph_(&graph), at_(at) {}

  // Adds a layer that reads the previous one.
  Chain& then(std::string name, engine::LayerPtr layer) {
    at_ = graph_->add(std::move(name), std::move(layer), {at_});
    return *this;
  }
  Chain& then(engine::LayerPtr layer) {
    return then("", std::move(layer));
  }  // for layers without parameters
  Chain& add(const Chain& other) {
    at_ = graph_->add("", engine::layers::add(), {at_, other.at_});
    return *this;
  }

  engine::NodeId at() const { return at_; }
  const engine::Shape& shape() const {
    return graph_->nodes()[static_cast<std::size_t>(at_)].shape;
  }

 private:
  engine::Graph* graph_;
  engine::NodeId at_;
};

// The nodes that all classifiers share: inputs "input" [h, w, c] and "labels", and the loss after
// the logits. For regression, "targets" [classes] replaces "labels"; these have the shape of
// ModelOptions::label_shape.
struct Ends {
  engine::NodeId input, labels;
  double label_smoothing = 0;
  std::optional<engine::ops::RegressionLoss> regression = {};
};
// Throws engine::ModelError for samples that are token ids.
Ends begin_classifier(engine::Graph& graph, const ModelOptions& options);
// The same for text models: inputs "input" [positions] of token ids and "labels" [positions], or of
// the given shape.
Ends begin_token_model(engine::Graph& graph, std::int64_t positions, double label_smoothing,
                       const std::optional<engine::Shape>& labels = {});
void end_classifier(engine::Graph& graph, const Ends& ends, engine::NodeId logits);

}  // namespace models
