// The predictions of a run's model for its test samples, for the page of `engine report`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/train/scores/class_counts.h"
#include "engine/train/train_observer.h"

namespace tools {

struct RunPredictions {
  struct Sample {
    std::int64_t number = 0;  // index in the test set, from 0
    std::int64_t label = 0, prediction = 0;
    double probability = 0, label_probability = 0;  // for the prediction, for the label
    std::string png = {};                           // its picture; "": none
    std::int64_t height = 0, width = 0;             // size of the picture
  };

  std::string checkpoint, set;
  std::string left_out = {};            // why the following fields are empty; "": they are not
  std::vector<std::string> names = {};  // names of the classes
  std::optional<engine::ClassCounts> counts = {};
  bool by_position = false;        // the counts are of positions, and there are no samples to show
  std::vector<Sample> worst = {};  // samples with the least likely labels, in this order

  // For a regression, these replace names, counts and worst; numbers are in the target's unit.
  struct Number {
    std::int64_t number = 0;  // index in the test set, from 0
    double target = 0, prediction = 0;
  };
  std::optional<engine::RegressionErrors> errors = {};
  std::string target = {};  // the column's name
  std::int64_t samples = 0;
  std::vector<Number> farthest = {};  // numbers with the largest errors, in this order
};

// Returns a section with the fraction of correct predictions, the confusion matrix, and the
// samples; or with the errors of numbers.
std::string predictions_html(const RunPredictions& run);

}  // namespace tools
