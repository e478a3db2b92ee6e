// What a run's model says of its test samples, as the page of `engine report` shows it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/train/class_counts.h"
#include "engine/train/train_observer.h"

namespace tools {

struct RunPredictions {
  struct Sample {
    std::int64_t number = 0;  // place in the test set, from 0
    std::int64_t label = 0, prediction = 0;
    double probability = 0, label_probability = 0;  // of the prediction, of the label
    std::string png = {};                           // its picture; "": there is none
    std::int64_t height = 0, width = 0;             // of the picture
  };

  std::string snapshot, set;
  std::string left_out = {};            // why there is nothing of what follows; "": there is
  std::vector<std::string> names = {};  // of the classes
  std::optional<engine::ClassCounts> counts = {};
  std::vector<Sample> worst = {};  // whose label is least likely, that one first

  // Of a regression, instead of names, counts and worst; numbers are in the target's unit.
  struct Number {
    std::int64_t number = 0;  // place in the test set, from 0
    double target = 0, prediction = 0;
  };
  std::optional<engine::RegressionErrors> errors = {};
  std::string target = {};  // the column's name
  std::int64_t samples = 0;
  std::vector<Number> farthest = {};  // from their targets, the farthest first
};

// A section: how many are right, the confusion matrix, and the samples; or the errors of numbers.
std::string judged_html(const RunPredictions& run);

}  // namespace tools
