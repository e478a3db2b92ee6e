// A layer that is translated to ONNX's operators, with its inputs.
//
// Values are [batch, channels, height, width] for images (in the engine: height, width, channels),
// [batch, positions, width] for sequences, [batch, width] for vectors.
#pragma once

#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "models/onnx_export/onnx_builder.h"

namespace models {

struct OnnxLayer {
  OnnxBuilder& out;
  const engine::Graph& graph;
  engine::NodeId id;
  std::string network_input;        // the value of all samples
  std::string tokens;               // the input of token ids; "" for models of images
  std::vector<std::string> inputs;  // values that the layer reads

  const engine::Graph::Node& node() const { return graph.nodes()[static_cast<std::size_t>(id)]; }
  engine::Shape input_shape() const { return graph.input_shapes(id).at(0); }  // of one item
  bool takes_images() const { return input_shape().rank() == 3; }
  // Throws engine::Error if the layer does not have the option.
  double option(const std::string& name) const;
  std::int64_t whole(const std::string& name) const {
    return static_cast<std::int64_t>(option(name));
  }
  // Returns the numbers of a list, which has an option of this name for each.
  std::vector<std::int64_t> list(const std::string& name) const;
  // The value of input `index` with its channels in the last dimension, as in the engine, and the
  // value of an output of the node that has them there in the place that other nodes expect.
  std::string channels_last(std::size_t index);
  std::string channels_first(const std::string& value);
  std::size_t parameters() const;
  std::string parameter(std::size_t index) const;  // its name in the model's state
  std::string buffer(const std::string& name) const;
};

}  // namespace models
