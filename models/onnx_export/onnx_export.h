// Converts a model of the engine to ONNX: its input, its layers, its logits.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "io/interchange/onnx_writer.h"

namespace models {

// Pixels from 0 to 255 become x / 255 or, with a mean and a deviation for each channel, (x / 255 -
// mean) / deviation.
struct PixelScaling {
  std::vector<float> mean, deviation;
};

// Converts the graph up to its logits, as it computes in inference: without dropout, with running
// statistics. `arrays`: the state from engine::export_state(), in f32. The inputs, with a free
// dimension "batch", are:
//   images    "input" f32 [batch, channels, height, width]; with `pixels` from 0 to 255, else as
//             the training has prepared them
//   features  "input" f32 [batch, columns]  (samples of [1, 1, columns])
//   tokens    "input" i64 [batch, positions], "positions" free up to the model's context
// Output: "logits" f32 [batch, classes] or [batch, positions, vocabulary].
// The caller sets producer and metadata. Throws engine::ModelError for a layer without ONNX
// operators, and for pixels of a model that reads none.
io::OnnxModel onnx_model(const engine::Graph& graph, std::vector<io::NamedArray> arrays,
                         const std::optional<PixelScaling>& pixels = {});

}  // namespace models
