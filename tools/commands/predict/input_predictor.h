// Applies a trained model to inputs of its own kind, block by block, for `engine predict`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/commands/predict/distributed_prediction.h"
#include "tools/commands/predict/trained_model.h"

namespace tools {

struct PredictorRequest {
  std::vector<std::string> inputs;  // files, and folders of images
  std::string layer = {};       // a layer whose output is also requested, by name or "#7"; "": none
  std::string checkpoint = {};  // for messages
};

class InputPredictor {
 public:
  virtual ~InputPredictor() = default;
  virtual BlockSizes sizes() const = 0;
  // Returns the shape of the layer's output for one sample.
  virtual std::vector<std::int64_t> watched_shape() const { return {}; }
  // Returns the next samples of the inputs, for predict_distributed(). Throws io::DataError for
  // invalid inputs.
  virtual PredictedBlock next(bool own) = 0;
  // Returns lines about categories and characters, in the inputs read so far, that the model does
  // not know.
  virtual std::vector<std::string> unknown() const = 0;
};

// Makes a predictor of images and tables, 64 samples per block, or of texts, for which it predicts
// the next character. `model` outlives it. Throws io::MissingFileError and io::DataError if inputs
// cannot be opened or the model has no vocabulary of characters, UsageError for a layer that the
// model does not have.
std::unique_ptr<InputPredictor> make_predictor(const PredictorRequest& request,
                                               TrainedModel& model);

}  // namespace tools
