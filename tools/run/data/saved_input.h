// Determines the input and the classes of a saved model from the checkpoint itself or, for older
// ones, from the run's record beside it, so that the data are not needed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/shape.h"
#include "io/checkpoint/checkpoint.h"
#include "io/data/dataset/splits.h"
#include "tools/options/table/option_table.h"

namespace tools {

struct SavedInput {
  engine::Shape sample_shape;                     // [h, w, c], or [context] for tokens
  std::optional<engine::Shape> label_shape = {};  // as of label_shape() in session_data.h
  std::int64_t classes = 0;
  std::string vocabulary = {};                          // for text: the byte of each token id
  std::optional<io::Normalization> normalization = {};  // none: unknown, or not images
  std::vector<float> mean = {}, deviation = {};         // for each channel, if known
  std::vector<std::string> class_names = {};            // by class, if known; or by label
  std::optional<io::TargetScale> target = {};           // set if the model predicts a number
  std::shared_ptr<const io::CsvCoding> table = {};  // coding of a table's columns; null: no table
  bool is_default = false;   // what the model was made for: no data are known
  bool multi_label = false;  // the model predicts several labels of 0 or 1
};

// `checkpoint`: the description of the checkpoint at `path`; nullptr: the file is not a checkpoint.
// `values`: options of the command line and, for a checkpoint, its saved options. The data are read
// if the command line names a data set (`other_data`), or for `statistics` that the checkpoint does
// not state. Without a data set, returns the input that the model was made for. Throws as reading
// the files does.
SavedInput saved_input(const io::Checkpoint* checkpoint, const std::string& path,
                       const ConfigValues& values, bool other_data, bool statistics);

// For commands that take a model without a data set: throws UsageError for options of `given` that
// only a data set makes use of.
void require_no_dataset(const ConfigValues& given);

}  // namespace tools
