// Names a trained model, and states what its checkpoint and its run say of its data.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "io/data/dataset/dataset_options.h"
#include "io/data/dataset/sample_coding.h"
#include "tools/run/data/saved_weights.h"
#include "tools/run/data/session_data.h"

namespace tools {

struct ModelReference {
  std::string path;  // of a run, checkpoint or file of weights
  engine::AverageKind weights = engine::AverageKind::kNone;
  std::string given = {};        // what path was before trained_config()
  std::string data_digest = {};  // of the run's training samples; "": unknown
  std::string test_digest = {};  // of the run's test samples; "": unknown
  std::string tokenizer = {};    // the text of the model's tokenizer.json; "": it has none
  // The checkpoint's statement of its samples (sample_statement.h), with the command line's options
  // for reading tables, and as it is in the checkpoint; null: it has none.
  std::shared_ptr<const io::SampleCoding> coding = {}, coding_of_run = {};
  io::CsvOptions reading = {};  // with those that the command line names in `given`
  std::optional<io::Normalization> normalization = {};  // from the same description
  bool of_run = false;         // a checkpoint that a training wrote; else only weights
  bool names_data = false;     // the command line names data, which may not be the run's
  bool other_samples = false;  // the command line selects other samples of the data than the run
  // The options with which the run read its data, for other_samples, and if its checkpoint states
  // no coding.
  std::optional<io::DatasetOptions> data_of_run = {};
};

}  // namespace tools
