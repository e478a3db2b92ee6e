// Shows samples of the test set beside the predictions of a model in training, for TensorBoard.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/metrics/event_file.h"
#include "tools/run/data/sample_predictor.h"

namespace tools {

class ShownSamples {
 public:
  // Shows `count` of them, evenly spread over the set, which outlives this. `names` are those of
  // the classes.
  ShownSamples(std::unique_ptr<SamplePredictor> predictor, const io::Dataset& set,
               std::vector<std::string> names, const std::vector<std::int64_t>& samples);

  // Writes pictures with a green border if the prediction is correct and a red one if it is wrong,
  // and a table of predictions. The state must be in host memory.
  void show(std::int64_t step, io::EventFile& file);

 private:
  std::unique_ptr<SamplePredictor> predictor_;
  const io::Dataset& set_;
  const std::vector<std::string> names_;
  const std::vector<std::int64_t> samples_;
  std::vector<Picture> pictures_;  // one per sample, or none
};

// Returns `count` indices, evenly spread over the set; all for a smaller set.
std::vector<std::int64_t> spread_samples(const io::Dataset& set, std::int64_t count);

}  // namespace tools
