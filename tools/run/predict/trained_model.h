// A trained model as commands use it: its weights, the data that it was trained on, and where to
// compute.
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
  std::string path;  // of a run, snapshot or file of weights
  engine::AverageKind weights = engine::AverageKind::kNone;
  std::string given = {};        // what path was before trained_config()
  std::string data_digest = {};  // of the run's training samples; "": unknown
  // What the snapshot states of the samples (sample_statement.h). Null: it states nothing.
  std::shared_ptr<const io::SampleCoding> coding = {};
  std::optional<io::Normalization> normalization = {};  // that it states
  bool of_run = false;         // a snapshot that a training wrote; else weights alone
  bool names_data = false;     // the command line does: they may be other data than the run's
  bool other_samples = false;  // the command line asks for others of the data than the run's
  // How the run read its data, for other_samples, and if its snapshot states no coding.
  std::optional<io::DatasetOptions> data_of_run = {};
};

// What commands take from the table of options that let ranks run a trained model.
std::vector<std::string> judging_options();

// The configuration of the run whose model it is, with what the command line says otherwise; path
// becomes the snapshot's. The run's limit holds too: its training samples are the very ones. Throws
// what reading it throws.
RunConfig trained_config(ModelReference& reference, ConfigValues& values);

// How a command uses the data.
enum class DataUse {
  kCoding,   // how samples are coded: if the snapshot states it, no sample is read
  kSamples,  // as judged_data.h reads them
};

// On one rank.
class TrainedModel {
 public:
  // Collective. All ranks have rank 0's weights. Throws what loading throws, and io::DataError for
  // weights that are not finite.
  TrainedModel(const RunConfig& config, const ModelReference& reference, backends::Group& group,
               DataUse use);

  // The file that was read, on rank 0: a run that goes on may have pruned reference.path.
  const std::string& path() const { return path_; }
  backends::Communicator& control() { return *control_; }
  const Compute& compute() const { return compute_; }
  const io::DatasetSplits& data() const { return loaded_->splits; }
  bool other_data() const;  // than the run's; rank 0 alone has to know
  // Lines about the data: that they are a hold-out, what the model lacks of them.
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
