// The options of a model: what it reads and predicts, and what its family lets one choose.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/layers/layers.h"

namespace models {

struct ModelOptions {
  engine::Shape sample_shape;  // shape of one sample of the data set: [h, w, c]; features [1, 1,
                               // columns]; tokens [context]
  std::int64_t classes = 10;   // with a regression loss: number of regression targets
  double label_smoothing = 0;  // for the training loss, in [0, 1)
  double dropout = 0;          // for models that support it (mingpt's), in [0, 1)
  // The loss, if the model predicts regression targets instead of classes.
  std::optional<engine::ops::RegressionLoss> regression = {};
  // The shape of a sample's labels, [] or [positions...]; none: one label, or one for each token.
  std::optional<engine::Shape> label_shape = {};
  std::string definition = {};  // text of the layer list of the file `name`; "": the file is read
};

}  // namespace models
