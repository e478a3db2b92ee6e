// Samples of the test set beside what a model in training says of them, for TensorBoard.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/metrics/event_file.h"
#include "tools/run/data/sample_judge.h"

namespace tools {

class ShownSamples {
 public:
  // `count` of them, evenly over the set, which outlives this. `names` are those of the classes.
  ShownSamples(std::unique_ptr<SamplePredictor> judge, const io::Dataset& set,
               std::vector<std::string> names, const std::vector<std::int64_t>& samples);

  // Pictures in a green border where the prediction is right and a red one where it is wrong, and a
  // table of predictions. The state lies in host memory.
  void show(std::int64_t step, io::EventFile& file);

 private:
  std::unique_ptr<SamplePredictor> judge_;
  const io::Dataset& set_;
  const std::vector<std::string> names_;
  const std::vector<std::int64_t> samples_;
  std::vector<Picture> pictures_;  // of each sample, or none
};

// So many places of the set, evenly over it; all of a smaller set.
std::vector<std::int64_t> spread_samples(const io::Dataset& set, std::int64_t count);

}  // namespace tools
