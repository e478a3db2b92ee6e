// What a saved model reads and which classes it tells apart, from the snapshot itself, or from the
// run's own record where that lies beside an older one, so that the data need not be there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/core/shape.h"
#include "io/checkpoint/checkpoint.h"
#include "io/data/dataset/splits.h"
#include "tools/options/table/option_table.h"

namespace tools {

struct SavedInput {
  engine::Shape sample_shape;  // [h, w, c], or [context] for tokens
  std::int64_t classes = 0;
  std::string vocabulary = {};     // text: the byte of each token id
  std::string normalization = {};  // images: "unit" or "standard"; "": unknown, or no images
  std::vector<float> mean = {}, deviation = {};  // of each channel, where they are known
  std::vector<std::string> class_names = {};     // by class, where they are known
  std::optional<io::TargetScale> target = {};    // the model predicts a number, no classes
};

// `snapshot`: the description of the one at `path`; nullptr: the file is none. `values`: options of
// the command line and, of a snapshot, what it has saved; with data sets named on the command line
// (`other_data`), and with `statistics` that the snapshot does not state, the data are read.
// Without a data set it is what the model was made for. Throws what reading the files throws.
SavedInput saved_input(const io::Checkpoint* snapshot, const std::string& path,
                       const ConfigValues& values, bool other_data, bool statistics);

}  // namespace tools
