// A model of the engine as one of ONNX: what its input is, its layers, its logits.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "io/interchange/onnx_file.h"

namespace tools {

// Pixels from 0 to 255 become x / 255 or, with a mean and a deviation for each channel,
// (x / 255 - mean) / deviation.
struct PixelScaling {
  std::vector<float> mean, deviation;
};

// The graph up to its logits, as it computes in inference: without dropout, with running
// statistics. `arrays`: the state as engine::export_state() gives it, in f32. Inputs, with "batch"
// free:
//   images    "input" f32 [batch, channels, height, width]; with `pixels` from 0 to 255, else as
//             the training has prepared them
//   features  "input" f32 [batch, columns]  (samples of [1, 1, columns])
//   tokens    "input" i64 [batch, positions], "positions" free up to the model's context
// Output: "logits" f32 [batch, classes] or [batch, positions, vocabulary].
// Producer and metadata are left to the caller. Throws engine::ModelError for a layer that ONNX
// has no operators for, and for pixels of a model that reads none.
io::OnnxModel onnx_model(const engine::Graph& graph, std::vector<io::NamedArray> arrays,
                         const std::optional<PixelScaling>& pixels = {});

}  // namespace tools
