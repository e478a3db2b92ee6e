// A trained model on inputs of its own kind, block by block: what `engine predict` prints.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/run/predict/distributed_prediction.h"
#include "tools/run/predict/trained_model.h"

namespace tools {

struct PredictorRequest {
  std::vector<std::string> inputs;  // files, and folders of images
  std::string layer = {};           // whose output is wanted, too, by name or "#7"; "": none
  std::string snapshot = {};        // for messages
};

class InputPredictor {
 public:
  virtual ~InputPredictor() = default;
  virtual BlockSizes sizes() const = 0;
  // Of the layer's output for one sample.
  virtual std::vector<std::int64_t> watched_shape() const { return {}; }
  // The next samples of the inputs, for predict_distributed(). Throws io::DataError for what is
  // wrong with them.
  virtual PredictedBlock next(bool own) = 0;
  // Lines about categories and characters, of what was read up to now, that the model lacks.
  virtual std::vector<std::string> unknown() const = 0;
};

// Images and tables, 64 samples a block; of each text the character that follows. `model` outlives
// it. Throws io::MissingFileError and io::DataError where inputs cannot be opened or the model has
// no vocabulary of characters, UsageError for a layer that the model lacks.
std::unique_ptr<InputPredictor> make_predictor(const PredictorRequest& request,
                                               TrainedModel& model);

}  // namespace tools
