// A trained model as commands use it: its weights, the data that it was trained on, and its device.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/communicator.h"
#include "engine/core/thread_pool.h"
#include "engine/graph/model_state.h"
#include "io/data/dataset/sample_coding.h"
#include "tools/options/table/run_config.h"
#include "tools/run/choices/compute_choice.h"
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

// Returns the table options of commands whose ranks run a trained model.
std::vector<std::string> judging_options();

// A command's use of the data.
enum class DataUse {
  kCoding,   // only for the coding of samples: if the checkpoint states it, no sample is read
  kSamples,  // as read by judged_data.h
};

// Returns the configuration of the model's run, with changes from the command line; path becomes
// the checkpoint's. The run's limit also applies, so its training samples are the same. Throws
// io::ConfigError for an option of the command line that would change what the checkpoint states,
// or has no effect for this use; also throws as reading the checkpoint does.
RunConfig trained_config(ModelReference& reference, ConfigValues& values, DataUse use);

// The model on one rank.
class TrainedModel {
 public:
  // Collective. All ranks have rank 0's weights. Throws as loading does, and io::DataError for
  // weights that are not finite.
  TrainedModel(const RunConfig& config, const ModelReference& reference, backends::Group& group,
               DataUse use);

  // Returns the file that was read, on rank 0: a running training may have pruned reference.path.
  const std::string& path() const { return path_; }
  backends::Communicator& control() { return *control_; }
  const Compute& compute() const { return compute_; }
  const io::DatasetSplits& data() const { return loaded_->splits; }
  bool other_data() const;  // true if the data are not the run's; valid only on rank 0
  // Returns lines about the data: that they are a hold-out, and values that the model does not
  // know.
  const std::vector<std::string>& data_notices() const { return loaded_->splits.warnings; }
  io::Normalization normalization() const { return tools::normalization(options_, data().train); }
  const engine::Graph& graph() const { return graph_; }
  engine::ModelState& state() { return state_; }
  engine::ThreadPool& pool() { return pool_; }

 private:
  const std::unique_ptr<backends::Communicator> control_;
  const Compute compute_;
  const DataOptions options_;
  const std::shared_ptr<LoadedData> loaded_;
  const std::string digest_;
  std::string path_;
  const engine::Graph graph_;
  engine::ModelState state_;
  engine::ThreadPool pool_;
};

}  // namespace tools
