// Models by name: wiring only, with PyTorch's parameter names and shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/layers/layers.h"

namespace models {

struct ModelOptions {
  engine::Shape sample_shape;  // of one sample of the data set: [h, w, c]; features [1, 1,
                               // columns]; tokens [context]
  std::int64_t classes = 10;   // with a regression loss: numbers that are predicted
  double label_smoothing = 0;  // of the training loss, in [0, 1)
  double dropout = 0;          // of the models that have it (mingpt's), in [0, 1)
  // The model predicts numbers, by this loss, instead of classes.
  std::optional<engine::ops::RegressionLoss> regression = {};
  std::string definition = {};  // text of the layer list that is called `name`; "": read the file
};

// A name of model_names() or the path of a TOML layer list (ends in .toml).
// Throws engine::ModelError (unknown name, with the nearest; dropout for a model without it; a
// regression loss for token ids or with label smoothing) and
// engine::ShapeError (a layer that does not fit).
engine::Graph build_model(const std::string& name, const ModelOptions& options);

// The text of a layer list's file; "" for a name of model_names(). Throws engine::ModelError.
std::string model_definition(const std::string& name);

// The layer list `text` of the file `name` in one spelling, without comments and order of keys: a
// line for what stands before the layers, then one for each layer. Throws engine::ModelError.
std::vector<std::string> definition_lines(const std::string& name, const std::string& text);

std::vector<std::string> model_names();

// What a model wants when no data set says so (engine bench): the sample shape it was made for and
// its classes.
ModelOptions default_options(const std::string& name);

}  // namespace models
